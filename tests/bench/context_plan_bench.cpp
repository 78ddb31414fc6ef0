// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <random>

#include "planner/attention/balance.h"
#include "planner/attention/schedule.h"
#include "tests/bench/bench.h"

namespace meshloom::bench {
namespace {

using planner::LoadBalancer;
using planner::RowMask;

struct ContextPlanOptions {
  std::vector<int> ranks = {8, 64, 1024};
  int documents = 64;
  std::int64_t tokens = 1024;
  int repeats = 20;
  unsigned seed = 1;
};

/// Ids of documents of random lengths that fill the sequence.
std::vector<std::int64_t> draw_documents(std::int64_t size, int count, unsigned seed) {
  std::mt19937_64 random(seed);
  std::vector<std::int64_t> ends{size};
  for (int i = 1; i < count; ++i)
    ends.push_back(std::uniform_int_distribution<std::int64_t>(1, size - 1)(random));
  std::sort(ends.begin(), ends.end());
  std::vector<std::int64_t> ids;
  for (std::size_t d = 0; d < ends.size(); ++d)
    ids.resize(static_cast<std::size_t>(ends[d]), static_cast<std::int64_t>(d));
  return ids;
}

/// The median time of a call in milliseconds.
template <typename Call>
double median_ms(int repeats, const Call& call) {
  std::vector<double> seconds;
  for (int i = 0; i < repeats; ++i) {
    const Clock::time_point start = Clock::now();
    call();
    seconds.push_back(seconds_since(start));
  }
  return std::round(percentile(seconds, 0.5) * 1e7) / 1e4;
}

nlohmann::ordered_json time_plan(int ranks, const ContextPlanOptions& options) {
  const std::int64_t size = options.tokens * ranks;
  const std::vector<std::int64_t> ids = draw_documents(size, options.documents, options.seed);
  RowMask row{{.is_causal = true}, nullptr};
  nlohmann::ordered_json entry{{"ranks", ranks}, {"tokens", size}};
  entry["read_documents_ms"] = median_ms(options.repeats, [&] {
    row.documents = std::make_shared<const planner::SequenceDocuments>(ids);
  });
  std::vector<planner::SequencePart> parts;
  entry["order_ms"] = median_ms(options.repeats, [&] {
    parts.clear();
    for (planner::IndexRanges& held :
         planner::balanced_parts(LoadBalancer::kPerDocument, size, ranks, row))
      parts.push_back({held, held});
  });
  double schedule = 0.0, requests = 0.0;
  for (const int rank : {0, ranks / 2, ranks - 1}) {
    schedule = std::max(schedule, median_ms(options.repeats, [&] {
                          planner::attention_schedule(rank, parts, row);
                        }));
    requests = std::max(
        requests, median_ms(options.repeats, [&] { planner::requested_keys(rank, parts, row); }));
  }
  entry["schedule_ms"] = schedule;
  entry["requested_keys_ms"] = requests;
  entry["own_part_ms"] = std::round((schedule + requests) * 1e4) / 1e4;
  return entry;
}

}  // namespace

int run_context_plan_bench(int argc, char** argv) {
  ContextPlanOptions options;
  CLI::App app("Time to plan context-parallel attention of packed documents on one rank",
               "context_plan");
  app.add_option("--ranks", options.ranks, "ranks of the sequence")->check(CLI::Range(1, 1 << 16));
  app.add_option("--documents", options.documents, "documents of the sequence")
      ->check(CLI::PositiveNumber);
  app.add_option("--tokens", options.tokens, "tokens of a rank")->check(CLI::Range(2, 1 << 20));
  app.add_option("--repeats", options.repeats, "the median of so many calls")
      ->check(CLI::PositiveNumber);
  app.add_option("--seed", options.seed, "seed of the documents' lengths");
  CLI11_PARSE(app, argc, argv);
  nlohmann::ordered_json result{{"benchmark", "context_plan"}, {"documents", options.documents}};
  for (const int ranks : options.ranks) result["plans"].push_back(time_plan(ranks, options));
  std::printf("%s\n", result.dump().c_str());
  return 0;
}

}  // namespace meshloom::bench
