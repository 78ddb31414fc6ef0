// SPDX-License-Identifier: Apache-2.0
#include "planner/parameter_shards.h"

#include <algorithm>
#include <set>

#include "kernels/base/error.h"

namespace meshloom::planner {
namespace {

ShardChoice largest_divisible(const ShardCandidate& candidate, int ranks,
                              const ShardOptions& options) {
  if (numel(candidate.shape) < options.min_elements) return {std::nullopt, "small"};
  std::optional<int> best;
  for (int dim = 0; dim < candidate.shape.size(); ++dim) {
    const bool taken = std::find(candidate.other_sharded.begin(), candidate.other_sharded.end(),
                                 dim) != candidate.other_sharded.end();
    if (taken || candidate.shape[dim] % ranks != 0) continue;
    if (!best || candidate.shape[dim] > candidate.shape[*best]) best = dim;
  }
  return {best, best ? "largest_divisible" : "no dim divides"};
}

// Smaller shards, in bytes of float32, cost more in messages than packing them does.
constexpr std::int64_t kAloneBytes = 32 << 10;
constexpr std::int64_t kAlignment = 16;

bool is_number(std::string_view text) {
  return !text.empty() &&
         std::all_of(text.begin(), text.end(), [](char c) { return c >= '0' && c <= '9'; });
}

}  // namespace

ShardChoice choose_shard(const ShardCandidate& candidate, int ranks, const ShardOptions& options) {
  const auto given = options.dims.find(candidate.name);
  if (given != options.dims.end()) {
    const std::optional<int> dim = given->second;
    check(!dim || (*dim >= 0 && *dim < candidate.shape.size()),
          "fully_shard: {} has shape {}, dim {} cannot be sharded", candidate.name, candidate.shape,
          dim.value_or(0));
    return {dim, "override"};
  }
  if (candidate.shape.empty()) return {std::nullopt, "scalar"};
  if (options.policy == ShardPolicy::kLargestDivisible)
    return largest_divisible(candidate, ranks, options);
  return {0, "dim0"};
}

std::vector<ShardChoice> choose_shards(const std::vector<ShardCandidate>& candidates, int ranks,
                                       const ShardOptions& options) {
  std::vector<ShardChoice> choices;
  std::set<std::string> names;
  for (const ShardCandidate& candidate : candidates) {
    names.insert(candidate.name);
    choices.push_back(choose_shard(candidate, ranks, options));
  }
  for (const auto& [name, dim] : options.dims)
    check(names.contains(name), "fully_shard: there is no parameter {} to choose a dim for", name);
  return choices;
}

bool shards_travel_alone(int dim, std::int64_t elements) {
  return dim == 0 && elements * static_cast<std::int64_t>(sizeof(float)) >= kAloneBytes;
}

std::int64_t align_shard(std::int64_t elements) {
  return (elements + kAlignment - 1) / kAlignment * kAlignment;
}

std::string_view unit_of(std::string_view name) {
  for (std::size_t begin = 0; begin < name.size();) {
    const std::size_t dot = std::min(name.find('.', begin), name.size());
    if (is_number(name.substr(begin, dot - begin))) return name.substr(0, dot);
    begin = dot + 1;
  }
  return name.substr(0, 0);
}

}  // namespace meshloom::planner
