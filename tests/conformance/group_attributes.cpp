// SPDX-License-Identifier: Apache-2.0
#include "tests/conformance/group_attributes.h"

#include <algorithm>
#include <numeric>
#include <set>

#include "kernels/base/error.h"
#include "planner/shard.h"

namespace meshloom::conformance {
namespace {

using Counts = std::vector<std::int64_t>;

bool reduces(const std::string& op) {
  return op == "all_reduce" || op == "reduce_scatter" || op == "low_contention_reduce_scatter";
}

bool has_root(const std::string& op) {
  return op == "broadcast" || op == "scatter" || op == "gather";
}

comm::AllReduceAlgorithm read_algorithm(const std::string& text) {
  check(text == "auto" || text == "one_shot" || text == "two_shot",
        "all_reduce: algorithm is '{}', expected auto, one_shot or two_shot", text);
  if (text == "auto") return comm::AllReduceAlgorithm::kAuto;
  return text == "one_shot" ? comm::AllReduceAlgorithm::kOneShot
                            : comm::AllReduceAlgorithm::kTwoShot;
}

Counts read_counts_of(const Json& list, const std::string& op, int ranks) {
  check(list.is_array() && static_cast<int>(list.size()) == ranks,
        "{}: counts {} for {} ranks, expected one each", op, list.dump(), ranks);
  Counts counts;
  for (const Json& count : list) {
    check(count.is_number_integer() && count.get<std::int64_t>() >= 0,
          "{}: counts {} hold {}, expected whole numbers of at least 0", op, list.dump(),
          count.dump());
    counts.push_back(count.get<std::int64_t>());
  }
  return counts;
}

std::vector<Counts> read_counts(const Json& json, const std::string& op, int ranks) {
  if (op != "all_to_all") return {read_counts_of(json, op, ranks)};
  check(json.is_array() && static_cast<int>(json.size()) == ranks,
        "{}: counts {} for {} ranks, expected one list each", op, json.dump(), ranks);
  std::vector<Counts> counts;
  for (const Json& list : json) counts.push_back(read_counts_of(list, op, ranks));
  return counts;
}

std::vector<std::pair<int, int>> read_pairs(const Json& json, int ranks) {
  check(json.is_array(), "send_recv: pairs is {}, expected a list", json.dump());
  std::vector<std::pair<int, int>> pairs;
  std::set<std::int64_t> receivers;
  for (const Json& pair : json) {
    const bool fits = pair.is_array() && pair.size() == 2 && pair[0].is_number_integer() &&
                      pair[1].is_number_integer();
    check(fits, "send_recv: pairs hold {}, expected [from, to]", pair.dump());
    for (const Json& rank : pair)
      check(rank.get<std::int64_t>() >= 0 && rank.get<std::int64_t>() < ranks,
            "send_recv: pairs hold {}, but there are {} ranks", pair.dump(), ranks);
    check(receivers.insert(pair[1].get<std::int64_t>()).second,
          "send_recv: pairs {} give rank {} two senders", json.dump(), pair[1].dump());
    pairs.emplace_back(pair[0].get<int>(), pair[1].get<int>());
  }
  return pairs;
}

std::int64_t sum(const Counts& counts) {
  return std::accumulate(counts.begin(), counts.end(), std::int64_t{0});
}

Counts even_parts(std::int64_t rows, int ranks) {
  Counts counts;
  for (int r = 0; r < ranks; ++r) counts.push_back(planner::shard_range(rows, ranks, r).size());
  return counts;
}

}  // namespace

comm::ReduceOp read_reduce_op(const std::string& op, const std::string& text) {
  using comm::ReduceOp;
  for (const ReduceOp one :
       {ReduceOp::kSum, ReduceOp::kAvg, ReduceOp::kMax, ReduceOp::kMin, ReduceOp::kProd})
    if (text == comm::reduce_op_name(one)) return one;
  throw InvalidArgument(
      fmt::format("{}: reduce_op is '{}', expected sum, avg, max, min or prod", op, text));
}

GroupAttributes read_group_attributes(const std::string& op, const Case& c,
                                      const TensorFile& file) {
  const int ranks = static_cast<int>(c.mesh.size());
  const Shape shape = file.shape("in.x");
  check(!shape.empty() && shape[0] == ranks, "{}: in.x has shape {}, expected {} rows, one a rank",
        op, shape, ranks);
  static const Json kNoAttributes = Json::object();
  const Json& attributes = c.keys.contains("attributes") ? c.keys["attributes"] : kNoAttributes;
  ObjectReader reader(attributes, "attributes of " + op);
  GroupAttributes read;
  if (op == "all_reduce") {
    ObjectReader keys(c.keys, "case");
    read.algorithm =
        read_algorithm(reader.string_or("algorithm", keys.string_or("algorithm", "auto")));
  }
  if (reduces(op)) read.reduce_op = read_reduce_op(op, reader.string_or("reduce_op", "sum"));
  if (has_root(op)) {
    const std::int64_t root = reader.integer("root");
    check(root >= 0 && root < ranks, "{}: root is {}, but there are {} ranks", op, root, ranks);
    read.root = static_cast<int>(root);
  }
  const bool moves_in_place = op == "all_reduce" || op == "all_gather" || op == "reduce_scatter" ||
                              op == "all_to_all" || op == "broadcast";
  if (moves_in_place) read.in_place = reader.boolean_or("in_place", false);
  const bool counted = op == "all_gather" || op == "gather" || op == "reduce_scatter" ||
                       op == "scatter" || op == "all_to_all";
  if (counted && reader.has("counts")) read.counts = read_counts(reader.value("counts"), op, ranks);
  if (op == "send_recv") read.pairs = read_pairs(reader.value("pairs"), ranks);
  reader.finish();
  return read;
}

RowCounts row_counts(const std::string& op, const GroupAttributes& attributes, const Shape& shape,
                     int ranks) {
  const auto size = static_cast<std::size_t>(ranks);
  const bool whole = op == "all_reduce" || op == "broadcast" || op == "send_recv";
  check(whole || shape.size() >= 2, "{}: in.x has shape {}, expected rows for each rank", op,
        shape);
  const std::int64_t rows = shape.size() >= 2 ? shape[1] : 1;
  RowCounts counts;
  counts.results.assign(size, rows);
  const Counts given = attributes.counts.empty() ? Counts{} : attributes.counts[0];
  if (whole) return counts;
  if (op == "all_gather" || op == "gather" || op == "low_contention_all_gather") {
    counts.brings = given.empty() ? Counts(size, rows) : given;
    for (const std::int64_t count : counts.brings)
      check(count <= rows, "{}: counts hold {}, but x[r] has {} rows", op, count, rows);
    counts.results.assign(size, op == "gather" ? 0 : sum(counts.brings));
    if (op == "gather")
      counts.results[static_cast<std::size_t>(attributes.root)] = sum(counts.brings);
    return counts;
  }
  if (op == "all_to_all") {
    counts.sends = attributes.counts.empty() ? std::vector<Counts>(size, even_parts(rows, ranks))
                                             : attributes.counts;
    counts.results.assign(size, 0);
    for (const Counts& sends : counts.sends) {
      check(sum(sends) <= rows, "{}: counts {} are {} rows, but x[r] has {}", op,
            fmt::join(sends, ", "), sum(sends), rows);
      for (std::size_t p = 0; p < size; ++p) counts.results[p] += sends[p];
    }
    check(!attributes.in_place || counts.results == Counts(size, rows),
          "{}: in_place needs {} rows on every rank, not {}", op, rows,
          fmt::join(counts.results, ", "));
    return counts;
  }
  counts.parts = given.empty() ? even_parts(rows, ranks) : given;
  check(sum(counts.parts) <= rows, "{}: counts {} are {} rows, but x[r] has {}", op,
        fmt::join(counts.parts, ", "), sum(counts.parts), rows);
  counts.results = counts.parts;
  return counts;
}

}  // namespace meshloom::conformance
