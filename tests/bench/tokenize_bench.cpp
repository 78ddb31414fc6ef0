// SPDX-License-Identifier: Apache-2.0
// A tokenizer on a text: bytes a second of one thread's CPU time.
#include <time.h>

#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

#include <cstring>
#include <iostream>
#include <string>
#include <vector>

#include "daemon/base/input_file.h"
#include "daemon/text/pipeline_tokenizer.h"
#include "tests/bench/bench.h"

namespace meshloom::bench {
namespace {

constexpr std::uint64_t kMostBytes = std::uint64_t{1} << 30;

/// Of this thread: on a machine that others use, too, the clock says little.
double thread_seconds() { return cpu_seconds_on(CLOCK_THREAD_CPUTIME_ID); }

/// Seconds to read and write every byte of the text: what no tokenizer can be faster than.
double copy_seconds(const std::string& text) {
  std::string copy(text.size(), '\0');
  const double start = thread_seconds();
  std::memcpy(copy.data(), text.data(), text.size());
  return thread_seconds() - start;
}

}  // namespace

int run_tokenize_bench(int argc, char** argv) {
  CLI::App app("A tokenizer on a text, in one thread: bytes a second of its CPU time", "tokenize");
  std::string tokenizer_path, text_path;
  int rounds = 5;
  std::size_t document = 0;
  app.add_option("--tokenizer", tokenizer_path, "a tokenizer.json")->required();
  app.add_option("--text", text_path, "the text")->required();
  app.add_option("--rounds", rounds, "how often; the median counts")->check(CLI::Range(1, 1000));
  app.add_option("--document-bytes", document, "encode parts of this size, each by itself; 0: all");
  CLI11_PARSE(app, argc, argv);

  const auto tokenizer = text::read_tokenizer_json(
      base::InputFile(tokenizer_path).read_text(kMostBytes), tokenizer_path);
  const std::string text = base::InputFile(text_path).read_text(kMostBytes);
  if (document == 0) document = text.size();
  std::vector<double> seconds;
  std::vector<text::TokenId> tokens;
  for (int round = 0; round < rounds; ++round) {
    text::WordCache cache;
    tokens.clear();
    const double start = thread_seconds();
    for (std::size_t at = 0; at < text.size(); at += document)
      tokenizer.encode(std::string_view(text).substr(at, document), false, cache, tokens);
    seconds.push_back(thread_seconds() - start);
  }
  const double median = percentile(seconds, 0.5), bytes = static_cast<double>(text.size());
  std::cout << nlohmann::json{{"benchmark", "tokenize"},
                              {"bytes", text.size()},
                              {"tokens", tokens.size()},
                              {"rounds", rounds},
                              {"cpu_seconds_p50", median},
                              {"cpu_seconds_best", percentile(seconds, 0)},
                              {"mb_per_second", bytes / median / 1e6},
                              {"copy_mb_per_second", bytes / copy_seconds(text) / 1e6}}
            << '\n';
  return 0;
}

}  // namespace meshloom::bench
