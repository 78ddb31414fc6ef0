// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <charconv>
#include <cstdio>
#include <nlohmann/json.hpp>

#include "tests/bench/bench.h"
#include "tests/unit/parallel/context_parallel/head_run.h"

namespace meshloom::bench {
namespace {

struct AttentionErrorOptions {
  std::vector<std::string> dims = {"40", "64", "80", "96", "128", "256", "192/128"};
  std::vector<std::int64_t> lengths = {3824, 8192, 11021};
  std::vector<int> ranks = {1, 2, 3, 4, 5, 8};
  std::vector<std::string> dtypes = {"float32", "bfloat16"};
  std::string rotate = "pull";
};

/// "192/128": of q and k, and of v.
std::pair<std::int64_t, std::int64_t> parse_dims(const std::string& text) {
  const std::size_t slash = text.find('/');
  const auto number = [&](const std::string& part) {
    std::int64_t value = 0;
    const auto end = part.data() + part.size();
    if (std::from_chars(part.data(), end, value).ptr != end || value < 1 || value > 4096)
      throw InvalidArgument(fmt::format("--dims {}: expected D or D/Dv, 1 to 4096", text));
    return value;
  };
  const std::int64_t dims = number(text.substr(0, slash));
  return {dims, slash == std::string::npos ? dims : number(text.substr(slash + 1))};
}

void measure(const std::string& dims_text, std::int64_t length, DType dtype,
             const AttentionErrorOptions& options) {
  const auto [dims, dims_v] = parse_dims(dims_text);
  const auto heads = test::random_heads(length, dims, dims_v, dtype, 17);
  const auto run = [&](int ranks, const planner::ContextParallelPlan& plan) {
    return test::join_heads(
        heads, [&](const auto& head) { return test::run_head(head, dtype, ranks, plan); });
  };
  const auto exact = test::join_heads(heads, testing::exact_attention);
  const auto one_rank = run(0, {});
  nlohmann::ordered_json line{{"benchmark", "attention_error"},
                              {"dtype", dtype_name(dtype)},
                              {"dims", dims_text},
                              {"tokens", length},
                              {"rotate", options.rotate}};
  for (const int ranks : options.ranks) {
    const planner::ContextParallelPlan plan{planner::LoadBalancer::kHeadTail,
                                            *planner::find_rotate(options.rotate), 0};
    const auto seen = run(ranks, plan);
    const testing::ErrorShare share = test::worst_share(seen, one_rank, exact, dtype);
    line["ranks"].push_back({{"ranks", ranks},
                             {"rms_share", std::round(share.rms * 1e3) / 1e3},
                             {"largest_share", std::round(share.largest * 1e3) / 1e3}});
    if (ranks != options.ranks.back()) continue;
    const auto again = run(ranks, plan);
    line["same_bits_again"] = seen.o == again.o && seen.lse == again.lse && seen.dq == again.dq &&
                              seen.dk == again.dk && seen.dv == again.dv;
  }
  std::printf("%s\n", line.dump().c_str());
  std::fflush(stdout);
}

}  // namespace

int run_attention_error_bench(int argc, char** argv) {
  AttentionErrorOptions options;
  CLI::App app(
      "Errors of context-parallel attention of one head (of short ones four) against float64, as a "
      "share of what is allowed: 1.25 times the root mean square error of the flash kernel on one "
      "rank and a quarter of an epsilon of the values', and twice its largest error and an epsilon "
      "of the largest value. The worst of O, lse, dQ, dK and dV",
      "attention_error");
  app.add_option("--dims", options.dims, "channels of a head, D or D/Dv")->delimiter(',');
  app.add_option("--seq", options.lengths, "tokens")->delimiter(',')->check(CLI::Range(1, 1 << 17));
  app.add_option("--ranks", options.ranks, "ranks (threads)")
      ->delimiter(',')
      ->check(CLI::Range(1, 64));
  app.add_option("--dtype", options.dtypes, "float32, bfloat16")
      ->delimiter(',')
      ->check(CLI::IsMember({"float32", "bfloat16"}));
  app.add_option("--rotate", options.rotate, planner::kRotateNames)
      ->check(CLI::IsMember({"allgather", "alltoall", "pull", "ulysses"}));
  CLI11_PARSE(app, argc, argv);
  for (const std::string& dtype : options.dtypes)
    for (const std::string& dims : options.dims)
      for (const std::int64_t length : options.lengths)
        measure(dims, length, *dtype_from_name(dtype), options);
  return 0;
}

}  // namespace meshloom::bench
