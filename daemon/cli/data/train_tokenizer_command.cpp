// SPDX-License-Identifier: Apache-2.0
// data train-tokenizer: a tokenizer of one's own text, made here without the daemon.
#include <fmt/format.h>
#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>

#include "daemon/base/usable_cores.h"
#include "daemon/cli/data/data_commands.h"
#include "daemon/cli/interrupt.h"
#include "daemon/cli/local_errors.h"
#include "daemon/cli/output/output.h"
#include "daemon/cli/output/terminal.h"
#include "daemon/command_line/number_checks.h"
#include "daemon/text/bpe_trainer.h"
#include "daemon/text/count_words.h"
#include "daemon/text/tokenizer_output.h"

namespace meshloom::cli {
namespace {

namespace fs = std::filesystem;
using Clock = std::chrono::steady_clock;

constexpr const char* kEndOfText = "<|endoftext|>";
constexpr std::chrono::milliseconds kBetween{100};

struct TrainTokenizerOptions {
  text::BpeTraining training;
  text::WordReading reading;
  std::vector<std::string> special;  ///< empty: kEndOfText
  std::string out;
  std::vector<std::string> paths;
};

/// Ends the work after Ctrl-C.
struct Interrupted {};

/// How far the work is, on a terminal; asks now and then whether Ctrl-C was pressed.
class TrainingDisplay {
 public:
  TrainingDisplay(bool quiet, const std::atomic<bool>& interrupted)
      : shows_(!quiet && is_terminal(STDERR_FILENO)), interrupted_(interrupted) {}
  ~TrainingDisplay() {
    if (shows_) fmt::print(stderr, "{}", kClearLine);
  }
  TrainingDisplay(const TrainingDisplay&) = delete;
  TrainingDisplay& operator=(const TrainingDisplay&) = delete;

  void show(const char* doing, const std::string& done, const std::string& all) {
    if (interrupted_) throw Interrupted();
    if (!shows_ || Clock::now() < shown_ + kBetween) return;
    shown_ = Clock::now();
    fmt::print(stderr, "{}{} {} of {}", kClearLine, doing, done, all);
    std::fflush(stderr);
  }

 private:
  const bool shows_;
  const std::atomic<bool>& interrupted_;
  Clock::time_point shown_;
};

std::vector<text::DocumentFile> document_files(const std::vector<std::string>& paths) {
  std::vector<text::DocumentFile> files;
  for (const std::string& path : paths)
    for (text::DocumentFile& file : text::find_document_files(path))
      files.push_back(std::move(file));
  return files;
}

struct Result {
  text::CountedText text;
  text::TrainedBpe trained;
  double seconds = 0;
};

/// Everything is as it was if it throws.
Result train(const TrainTokenizerOptions& options, TrainingDisplay& display) {
  const auto begin = Clock::now();
  const std::vector<text::DocumentFile> files = document_files(options.paths);
  text::check_training(options.training);
  text::TokenizerOutput output(options.out);
  std::uint64_t all = 0;
  for (const text::DocumentFile& file : files) all += fs::file_size(file.path);
  text::WordReading reading = options.reading;
  reading.progress = [&](std::uint64_t bytes) {
    display.show("reading", bytes_text(static_cast<std::int64_t>(bytes)),
                 bytes_text(static_cast<std::int64_t>(all)));
  };
  Result result;
  result.text = text::count_words(files, reading);
  const std::string wanted = grouped_digits(options.training.vocab_size);
  result.trained = text::train_bpe(
      result.text.words.words(), options.training,
      [&](std::int64_t tokens) { display.show("merging: token", grouped_digits(tokens), wanted); });
  output.commit(result.trained, options.training.special);
  result.seconds = std::chrono::duration<double>(Clock::now() - begin).count();
  return result;
}

double bytes_per_token(const Result& result) {
  return static_cast<double>(result.text.summary.bytes) /
         static_cast<double>(result.trained.text_tokens);
}

void print_result_json(const TrainTokenizerOptions& options, const Result& result) {
  const text::TokenizeSummary& summary = result.text.summary;
  nlohmann::ordered_json told;
  told["out"] = options.out;
  told["vocab_size"] = result.trained.tokens.size();
  told["requested_vocab_size"] = options.training.vocab_size;
  told["special_tokens"] = options.training.special;
  told["merges"] = result.trained.merges.size();
  told["files"] = summary.files;
  told["documents"] = summary.documents;
  told["replaced_documents"] = summary.replaced_documents;
  told["skipped_lines"] = summary.skipped_lines;
  told["bytes"] = summary.bytes;
  told["tokens"] = result.trained.text_tokens;
  told["bytes_per_token"] = bytes_per_token(result);
  told["distinct_words"] = result.text.words.distinct();
  told["left_out_words"] = result.text.words.forgotten();
  told["seconds"] = result.seconds;
  fmt::print("{}\n", told.dump(2, ' ', false, nlohmann::ordered_json::error_handler_t::replace));
}

void print_text_lines(const Result& result) {
  const text::TokenizeSummary& summary = result.text.summary;
  print_line("files", grouped_digits(summary.files));
  std::string documents = grouped_digits(summary.documents);
  if (summary.replaced_documents > 0)
    documents += fmt::format("; bytes that are no UTF-8 are read as U+FFFD in {} of them",
                             grouped_digits(summary.replaced_documents));
  if (summary.skipped_lines > 0)
    documents += fmt::format("; {} without text left out", plural(summary.skipped_lines, "line"));
  print_line("documents", documents);
  const text::WordCounts& words = result.text.words;
  std::string text =
      fmt::format("{}, {} words", bytes_text(static_cast<std::int64_t>(summary.bytes)),
                  grouped_digits(words.total()));
  if (words.forgotten() > 0)
    text += fmt::format(
        "; the rarest, {:.2f} % of them, are left out to stay within --memory",
        100.0 * static_cast<double>(words.forgotten()) / static_cast<double>(words.total()));
  print_line("text", text);
}

void print_result(const TrainTokenizerOptions& options, const Result& result) {
  print_text_lines(result);
  const auto made = static_cast<std::int64_t>(result.trained.tokens.size());
  const auto special = static_cast<std::int64_t>(options.training.special.size());
  std::string vocabulary =
      fmt::format("{}: 256 bytes, {} special, {} merged", plural(made, "token"),
                  grouped_digits(special), grouped_digits(made - special - 256));
  if (made < options.training.vocab_size)
    vocabulary += fmt::format(
        "; fewer than the {} asked for: the text has no more pairs that are "
        "there {} times",
        grouped_digits(options.training.vocab_size),
        grouped_digits(options.training.min_frequency));
  print_line("vocabulary", vocabulary);
  print_line("tokens",
             fmt::format("{} for this text, {:.2f} bytes each",
                         grouped_digits(result.trained.text_tokens), bytes_per_token(result)));
  print_line("seconds", fmt::format("{:.1f}", result.seconds));
  fs::path folder = fs::path(options.out).lexically_normal();
  if (!folder.has_filename()) folder = folder.parent_path();
  fmt::print(
      "Written: {}\nIn the job, where it lies below the daemon's --data-dir, with a model "
      "of vocab_size {} or more:\n  data: {{tokenizer: {}}}\n",
      (folder / "tokenizer.json").string(), made, folder.filename().string());
}

ExitCode train_tokenizer(bool json, TrainTokenizerOptions options) {
  options.training.special = options.reading.special =
      options.special.empty() ? std::vector<std::string>{kEndOfText} : options.special;
  std::atomic<bool> interrupted = false;
  const InterruptScope interrupt([&] { interrupted = true; });
  try {
    const Result result = [&] {
      TrainingDisplay display(json, interrupted);
      return train(options, display);
    }();
    if (json)
      print_result_json(options, result);
    else
      print_result(options, result);
    return kOk;
  } catch (const Interrupted&) {
    if (!json) fmt::print(stderr, "meshloom: interrupted; nothing was written\n");
    return kInterrupted;
  }
}

void add_options(CLI::App& command, TrainTokenizerOptions& options) {
  command
      .add_option("--vocab,--vocab-size", options.training.vocab_size,
                  "Tokens in all: 256 bytes, the special tokens and what is merged of them")
      ->required();
  command
      .add_option("--out", options.out,
                  "The folder that gets tokenizer.json and tokenizer_config.json; one that has a "
                  "tokenizer is refused")
      ->required();
  command
      .add_option(
          "--special", options.special,
          fmt::format("A token that stands for itself and is never divided; again for more. "
                      "The first ends documents. Default: {}",
                      kEndOfText))
      ->allow_extra_args(false);
  command
      .add_option("--min-frequency", options.training.min_frequency,
                  "How often a pair has to be there to be merged")
      ->check(command_line::positive())
      ->capture_default_str();
  command.add_option("--field", options.reading.documents.field,
                     "Of .jsonl files: which holds the text; default: text");
  command.add_flag("--skip-lines-without-text", options.reading.documents.skips_lines_without_text,
                   "Of .jsonl files: lines that hold no text are left out and counted, instead of "
                   "refused");
  command
      .add_option(
          "--threads", options.reading.threads,
          "Default: the cores that this program may use. The tokenizer is the same for any number")
      ->check(CLI::Range(1, 1024));
  command
      .add_option(
          "--memory", options.reading.most_bytes,
          "What the words of the text may take, such as 4GiB; the rarest are left out where "
          "they take more. Default: 1GiB")
      ->transform(command_line::size_with_unit());
  command
      .add_option("files", options.paths,
                  "Files of text or .jsonl on this machine, or folders of them")
      ->required();
}

}  // namespace

void add_train_tokenizer(CLI::App& data, CommandContext& context) {
  auto* command = data.add_subcommand("train-tokenizer",
                                      "A byte-level BPE of text on this machine, as a folder");
  auto options = std::make_shared<TrainTokenizerOptions>();
  options->reading.threads = base::usable_cores();
  add_options(*command, *options);
  command->footer(
      "Made without the daemon. Words are divided as GPT-2 does; a text that the tokenizer was not "
      "made of is read as well, since every byte is a token. The same files give the same bytes.\n"
      "Example: meshloom data train-tokenizer --vocab 4096 --out data/my-tokenizer corpus.txt");
  command->callback([&context, options] {
    context.action = [&context, options](Client&) {
      return telling_errors([&] { return train_tokenizer(context.json, *options); });
    };
  });
}

}  // namespace meshloom::cli
