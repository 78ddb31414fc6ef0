// SPDX-License-Identifier: Apache-2.0
// data tokenize and inspect: nothing here needs a daemon.
#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>
#include <thread>

#include "daemon/base/utf8.h"
#include "daemon/cli/commands.h"
#include "daemon/cli/output.h"
#include "daemon/text/token_file.h"
#include "daemon/text/tokenizer_folder.h"

namespace meshloom::cli {
namespace {

struct TokenizeCommandOptions {
  std::string tokenizer, out, field = "text";
  std::vector<std::string> paths;
  int threads = 0;
  bool no_end = false;
};

struct InspectOptions {
  std::string tokenizer, path, field = "text";
  std::int64_t sample = 64;
};

ExitCode tokenize(bool json, const TokenizeCommandOptions& options) {
  const text::FolderTokenizer opened = text::open_tokenizer(options.tokenizer);
  text::TokenizeOptions how;
  how.field = options.field;
  how.threads =
      options.threads > 0 ? options.threads : static_cast<int>(std::thread::hardware_concurrency());
  if (!options.no_end && !opened.eos)
    throw CliError(kUsage, fmt::format("{} names no eos_token to put between documents: give it in "
                                       "tokenizer_config.json, or --no-document-end",
                                       options.tokenizer));
  if (!options.no_end) how.end = opened.eos;
  std::vector<text::DocumentFile> files;
  for (const std::string& path : options.paths)
    for (text::DocumentFile& file : text::find_document_files(path))
      files.push_back(std::move(file));
  const auto summary = text::write_token_file(files, *opened.tokenizer, how, options.out);
  if (json) {
    fmt::print("{}\n", nlohmann::json{{"path", options.out},
                                      {"files", summary.files},
                                      {"documents", summary.documents},
                                      {"bytes", summary.bytes},
                                      {"tokens", summary.tokens},
                                      {"document_end",
                                       how.end ? nlohmann::json(*how.end) : nlohmann::json()}}
                           .dump(-1, ' ', false, nlohmann::json::error_handler_t::replace));
    return kOk;
  }
  print_line("files", std::to_string(summary.files));
  print_line("documents", std::to_string(summary.documents));
  print_line("text", bytes_text(static_cast<std::int64_t>(summary.bytes)));
  print_line("tokens", std::to_string(summary.tokens));
  fmt::print("In the job: data: {{path: {}, format: llmc{}}}\n", options.out,
             how.end ? fmt::format(", document_end: {}", *how.end) : "");
  return kOk;
}

/// Files of text, as a job would tokenize them.
ExitCode inspect_text(bool json, const InspectOptions& options) {
  const text::FolderTokenizer opened = text::open_tokenizer(options.tokenizer);
  const std::vector<text::DocumentFile> files = text::find_document_files(options.path);
  std::int64_t documents = 0, bytes = 0, tokens = 0;
  text::WordCache cache;
  std::vector<text::TokenId> encoded, first;
  for (const text::DocumentFile& file : files)
    text::for_each_document(file, options.field, [&](const std::string& document) {
      encoded.clear();
      opened.tokenizer->encode(document, false, cache, encoded);
      if (documents++ == 0) first = encoded;
      bytes += static_cast<std::int64_t>(document.size());
      tokens += static_cast<std::int64_t>(encoded.size());
    });
  first.resize(std::min(first.size(), static_cast<std::size_t>(options.sample)));
  const std::string sample = opened.tokenizer->decode(first, false);
  if (json) {
    fmt::print("{}\n", nlohmann::json{{"path", options.path},
                                      {"files", files.size()},
                                      {"documents", documents},
                                      {"bytes", bytes},
                                      {"tokens", tokens},
                                      {"sample", sample}}
                           .dump(-1, ' ', false, nlohmann::json::error_handler_t::replace));
    return kOk;
  }
  print_line("files", std::to_string(files.size()));
  print_line("documents", std::to_string(documents));
  print_line("text", bytes_text(bytes));
  print_line("tokens", fmt::format("{}, and an eos behind each document", tokens));
  fmt::print("\n{}\n", base::printable_text(sample));
  return kOk;
}

ExitCode inspect(bool json, const InspectOptions& options) {
  if (std::filesystem::path(options.path).extension() != ".bin") return inspect_text(json, options);
  const text::TokenFile file(options.path);
  const text::FolderTokenizer opened = text::open_tokenizer(options.tokenizer);
  constexpr std::int64_t kPart = 1 << 20;
  std::int64_t ends = 0, outside = 0;
  for (std::int64_t at = 0; at < file.size(); at += kPart)
    for (const text::TokenId token : file.read(at, kPart)) {
      ends += token == opened.eos;
      outside += token < 0 || token >= opened.tokenizer->end();
    }
  const std::string sample = opened.tokenizer->decode(file.read(0, options.sample), false);
  if (json) {
    fmt::print("{}\n", nlohmann::json{{"path", options.path},
                                      {"tokens", file.size()},
                                      {"eos_tokens", ends},
                                      {"outside_vocabulary", outside},
                                      {"sample", sample}}
                           .dump(-1, ' ', false, nlohmann::json::error_handler_t::replace));
    return kOk;
  }
  print_line("tokens", std::to_string(file.size()));
  print_line("eos", opened.eos ? fmt::format("token {}, {} times", *opened.eos, ends) : "");
  print_line("outside",
             outside > 0 ? fmt::format("{} tokens are not in the vocabulary", outside) : "");
  fmt::print("\n{}\n", base::printable_text(sample));
  return kOk;
}

void add_tokenize(CLI::App& data, CommandContext& context) {
  auto* command = data.add_subcommand("tokenize", "Text files as a file of tokens to train on");
  auto options = std::make_shared<TokenizeCommandOptions>();
  command->add_option("--tokenizer", options->tokenizer, "A Hugging Face folder with a tokenizer")
      ->required();
  command->add_option("--out", options->out, "The file of tokens, in llm.c's format")->required();
  command->add_option("--field", options->field, "Of .jsonl files: which holds the text");
  command->add_option("--threads", options->threads, "Default: as many as there are cores")
      ->check(CLI::Range(1, 1024));
  command->add_flag("--no-document-end", options->no_end, "No eos token after each document");
  command->add_option("paths", options->paths, "Files of text or .jsonl, or folders of them")
      ->required();
  command->footer(
      "Bytes that are no UTF-8 count as U+FFFD. A file of text is one document, a line of .jsonl "
      "too.\nExample: meshloom data tokenize --tokenizer gpt2 --out data/corpus.bin corpus/");
  command->callback([&context, options] {
    context.action = [&context, options](Client&) { return tokenize(context.json, *options); };
  });
}

void add_inspect(CLI::App& data, CommandContext& context) {
  auto* command = data.add_subcommand("inspect", "What a file of tokens holds, or files of text");
  auto options = std::make_shared<InspectOptions>();
  command->add_option("--tokenizer", options->tokenizer, "The folder that it was made with")
      ->required();
  command->add_option("--field", options->field, "Of .jsonl files: which holds the text");
  command->add_option("--sample", options->sample, "Tokens to show as text, default 64")
      ->check(CLI::Range(0, 1 << 20));
  command
      ->add_option(
          "path", options->path,
          "A .bin as data tokenize writes it; else files of text or .jsonl, or a folder of them")
      ->required();
  command->callback([&context, options] {
    context.action = [&context, options](Client&) { return inspect(context.json, *options); };
  });
}

}  // namespace

void add_data_commands(CLI::App& app, CommandContext& context) {
  auto* data = app.add_subcommand("data", "Text as tokens, for models with a tokenizer");
  data->require_subcommand(1);
  add_tokenize(*data, context);
  add_inspect(*data, context);
}

}  // namespace meshloom::cli
