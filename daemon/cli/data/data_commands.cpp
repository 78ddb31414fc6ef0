// SPDX-License-Identifier: Apache-2.0
// data import, tokenize and inspect: the daemon reads and writes, here it is shown.
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <memory>
#include <optional>

#include "daemon/base/utf8.h"
#include "daemon/cli/data/chat_sample.h"
#include "daemon/cli/data/data_call.h"
#include "daemon/cli/data/data_commands.h"
#include "daemon/cli/data/data_import.h"
#include "daemon/cli/output/output.h"
#include "daemon/cli/output/terminal.h"
#include "daemon/command_line/number_checks.h"

namespace meshloom::cli {
namespace {

/// A screen shows this much of a sample's text.
constexpr std::size_t kShownBytes = 2000;

/// How text is read, as both commands take it.
struct ReadingOptions {
  std::string tokenizer, field, chat_template, loss;
  bool no_end = false, no_special_tokens = false, skips_lines = false;
};

struct TokenizeCommandOptions {
  ReadingOptions reading;
  std::string out;
  std::vector<std::string> paths;
  bool overwrite = false;
};

struct InspectOptions {
  ReadingOptions reading;
  std::string path;
  std::optional<std::int64_t> seq_len;
};

void set_reading(const ReadingOptions& options, v1::TextReading* reading) {
  reading->set_tokenizer(options.tokenizer);
  reading->set_field(options.field);
  if (options.no_end) reading->set_append_eos(false);
  if (options.no_special_tokens) reading->set_add_special_tokens(false);
  reading->set_skip_lines_without_text(options.skips_lines);
  if (!options.chat_template.empty()) reading->mutable_chat()->set_template_(options.chat_template);
  if (!options.loss.empty())
    reading->mutable_chat()->set_loss(options.loss == "all" ? v1::LOSS_TOKENS_ALL
                                                            : v1::LOSS_TOKENS_ANSWERS);
}

void print_text_line(std::int64_t bytes, std::int64_t replaced, std::int64_t skipped) {
  std::string text = bytes_text(bytes);
  if (replaced > 0)
    text += fmt::format(
        "; bytes that are no UTF-8, or halves of surrogate pairs, are read as U+FFFD in {}",
        plural(replaced, "document"));
  if (skipped > 0) text += fmt::format("; {} without text left out", plural(skipped, "line"));
  print_line("text", text);
}

ExitCode tokenize(Client& client, bool json, const TokenizeCommandOptions& options) {
  v1::TokenizeDataRequest request;
  for (const std::string& path : options.paths) request.add_paths(path);
  set_reading(options.reading, request.mutable_reading());
  request.set_out(options.out);
  request.set_overwrite(options.overwrite);
  const auto last = last_of<v1::TokenizeDataResponse>(
      client, json, "tokenizing",
      [&](grpc::ClientContext* context) { return client.data().TokenizeData(context, request); });
  if (!last) return kInterrupted;
  const v1::TokenFileSummary& made = last->result();
  if (json) {
    print_json(made);
    return kOk;
  }
  print_line("files", grouped_digits(made.files()));
  print_line("documents", grouped_digits(made.documents()));
  print_text_line(made.bytes(), made.replaced_documents(), made.skipped_lines());
  if (made.has_chat()) print_line("chat", chat_text(made.chat()));
  print_line("tokens", grouped_digits(made.tokens()));
  fmt::print("In the job:\n  data: {{path: {}, format: llmc{}}}\n", made.path(),
             made.has_document_end() ? fmt::format(", document_end: {}", made.document_end()) : "");
  return kOk;
}

void print_chat_sample(const v1::DataInspection& seen) {
  const bool colour = is_terminal(STDOUT_FILENO);
  const std::string text = sample_parts_text(seen, kShownBytes, colour);
  fmt::print("sample      the first conversation, {}; what counts {}\n\n{}\n{}",
             plural(seen.sample_tokens(), "token"),
             colour ? "is green" : "stands between [[ and ]]", text,
             seen.sample().size() > kShownBytes
                 ? fmt::format("\n... cut: {} of it are shown; --json has {}\n",
                               bytes_text(static_cast<std::int64_t>(kShownBytes)),
                               seen.sample_is_cut() ? "its first MiB" : "all of it")
                 : "");
}

void print_sample(const v1::DataInspection& seen) {
  std::string sample = seen.sample();
  std::string cut;
  if (sample.size() > kShownBytes || seen.sample_is_cut()) {
    const std::size_t end = base::utf8_cut(sample, kShownBytes);
    cut = fmt::format("\n... cut: {} of the sample are shown; --json has {}\n", bytes_text(end),
                      seen.sample_is_cut() ? "its first MiB" : "all of it");
    sample.resize(end);
  }
  fmt::print("sample      the first {}\n\n{}\n{}", plural(seen.sample_tokens(), "token"),
             base::printable_text(sample), cut);
}

ExitCode inspect(Client& client, bool json, const InspectOptions& options) {
  v1::InspectDataRequest request;
  request.set_path(options.path);
  set_reading(options.reading, request.mutable_reading());
  if (options.seq_len) request.set_seq_len(*options.seq_len);
  const auto last = last_of<v1::InspectDataResponse>(
      client, json, "reading",
      [&](grpc::ClientContext* context) { return client.data().InspectData(context, request); });
  if (!last) return kInterrupted;
  const v1::DataInspection& seen = last->result();
  if (json) {
    print_json(seen);
    return kOk;
  }
  const bool is_text = seen.dtype().empty();
  print_line("files", fmt::format("{}, {}", grouped_digits(seen.files()), seen.format()));
  if (seen.has_documents()) print_line("documents", grouped_digits(seen.documents()));
  if (seen.has_chat()) print_line("chat", chat_text(seen.chat()));
  if (is_text) print_text_line(seen.bytes(), seen.replaced_documents(), seen.skipped_lines());
  std::string tokens = grouped_digits(seen.tokens());
  if (!is_text) tokens += ", " + seen.dtype();
  if (seen.has_document_end())
    tokens += fmt::format(", token {} behind each document", seen.document_end());
  if (seen.outside_vocabulary() > 0)
    tokens += fmt::format("; {} of them are not in the vocabulary",
                          grouped_digits(seen.outside_vocabulary()));
  print_line("tokens", tokens);
  const char* source = seen.seq_len_source() == v1::SEQ_LEN_SOURCE_REQUEST ? "--seq"
                       : seen.seq_len_source() == v1::SEQ_LEN_SOURCE_MODEL
                           ? "the context of the tokenizer's model"
                           : "the default: --seq says another";
  print_line("samples", fmt::format("{}, of {} ({})", grouped_digits(seen.samples()),
                                    plural(seen.seq_len(), "token"), source));
  print_line("tokenizer", seen.tokenizer());
  print_line("note", seen.not_trained_on());
  if (seen.has_chat())
    print_chat_sample(seen);
  else
    print_sample(seen);
  return kOk;
}

ExitCode import_data(Client& client, bool json, const DataImport& asked) {
  const auto file = import_upload(client, json, asked);
  if (!file) return kInterrupted;
  if (json)
    print_json(*file);
  else
    print_imported(*file);
  return kOk;
}

void add_reading_options(CLI::App& command, ReadingOptions& options) {
  command.add_option("--tokenizer", options.tokenizer,
                     "A Hugging Face folder below the daemon's --data-dir, models/NAME of the "
                     "daemon, a preset, or bytes");
  command.add_option("--field", options.field,
                     "Of .jsonl files: which holds the text; default: text");
  command.add_flag("--no-document-end", options.no_end, "No eos token after each document");
  command.add_flag("--no-special-tokens", options.no_special_tokens,
                   "None of the tokens around each document that the tokenizer adds to a text (a "
                   "bos, [CLS] and [SEP])");
  command.add_flag("--skip-lines-without-text", options.skips_lines,
                   "Of .jsonl files: lines that hold no text are left out and counted, instead of "
                   "refused");
  command.add_option(
      "--chat-template", options.chat_template,
      "Of conversations: a file below --data-dir that ends in .jinja, the name of one "
      "of several templates of the tokenizer's folder, or none; default: the "
      "folder's");
  command
      .add_option("--loss", options.loss,
                  "Of conversations: what is learnt, answers (the default) or all")
      ->check(CLI::IsMember({"answers", "all"}));
}

void add_tokenize(CLI::App& data, CommandContext& context) {
  auto* command = data.add_subcommand("tokenize", "Text files as a file of tokens to train on");
  auto options = std::make_shared<TokenizeCommandOptions>();
  add_reading_options(*command, options->reading);
  command->get_option("--tokenizer")->required();
  command
      ->add_option("--out", options->out,
                   "The file of tokens, in llm.c's format, below the daemon's --data-dir")
      ->required();
  command->add_flag("--overwrite", options->overwrite, "Takes the place of a file that is there");
  command
      ->add_option("paths", options->paths,
                   "Files of text or .jsonl, or folders of them, below the daemon's --data-dir")
      ->required();
  command->footer(
      "Bytes that are no UTF-8 count as U+FFFD. A file of text is one document, a line of .jsonl "
      "too. A byte-order mark is no part of a text, and its lines end in \\n, but for bytes.\n"
      "Example: meshloom data tokenize --tokenizer gpt2 --out corpus.bin corpus");
  command->callback([&context, options] {
    context.action = [&context, options](Client& client) {
      return tokenize(client, context.json, *options);
    };
  });
}

void add_inspect(CLI::App& data, CommandContext& context) {
  auto* command = data.add_subcommand("inspect", "What files of text or of tokens hold");
  auto options = std::make_shared<InspectOptions>();
  add_reading_options(*command, options->reading);
  command
      ->add_option("--seq", options->seq_len,
                   "Tokens of a sample; default: the context of the tokenizer's model, else 1024")
      ->check(command_line::positive());
  command
      ->add_option("path", options->path,
                   "A file or a folder below the daemon's --data-dir: text, .jsonl, .bin, .npy")
      ->required();
  command->footer(
      "Without a tokenizer text is read as bytes, and tokens are shown as numbers.\n"
      "Example: meshloom data inspect --tokenizer gpt2 --seq 512 corpus");
  command->callback([&context, options] {
    context.action = [&context, options](Client& client) {
      return inspect(client, context.json, *options);
    };
  });
}

void add_import(CLI::App& data, CommandContext& context) {
  auto* command =
      data.add_subcommand("import", "An upload as a file that jobs train on; the upload stays");
  auto asked = std::make_shared<DataImport>();
  command->add_option("upload", asked->upload, "As \"upload list\" shows it")->required();
  command
      ->add_option("path", asked->path,
                   "The file that is made, below the daemon's --data-dir; its folder must be there")
      ->required();
  command->add_flag("--overwrite", asked->overwrite, "Takes the place of a file that is there");
  command->footer(
      "\"meshloom upload FILE --data PATH\" sends a file and does this.\n"
      "Example: meshloom data import uploads/upload-1 corpus.txt");
  command->callback([&context, asked] {
    context.action = [&context, asked](Client& client) {
      return import_data(client, context.json, *asked);
    };
  });
}

}  // namespace

void add_data_commands(CLI::App& app, CommandContext& context) {
  auto* data = app.add_subcommand("data", "Text and tokens below the daemon's data folders");
  data->require_subcommand(1);
  add_import(*data, context);
  add_tokenize(*data, context);
  add_inspect(*data, context);
  add_train_tokenizer(*data, context);
}

}  // namespace meshloom::cli
