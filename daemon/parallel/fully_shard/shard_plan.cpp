// SPDX-License-Identifier: Apache-2.0
#include "daemon/parallel/fully_shard/shard_plan.h"

#include <algorithm>
#include <set>

#include "kernels/base/error.h"

namespace meshloom::parallel {
namespace {

ShardChoice largest_divisible(const ShardCandidate& candidate, int ranks,
                              const FullyShardOptions& options) {
  if (numel(candidate.shape) < options.min_elements) return {std::nullopt, "small"};
  std::optional<int> best;
  for (int dim = 0; dim < candidate.shape.size(); ++dim) {
    const bool taken = std::find(candidate.other_cut.begin(), candidate.other_cut.end(), dim) !=
                       candidate.other_cut.end();
    if (taken || candidate.shape[dim] % ranks != 0) continue;
    if (!best || candidate.shape[dim] > candidate.shape[*best]) best = dim;
  }
  return {best, best ? "largest_divisible" : "no dim divides"};
}

ShardChoice choose(const ShardCandidate& candidate, int ranks, const FullyShardOptions& options) {
  const auto given = options.dims.find(candidate.name);
  if (given != options.dims.end()) {
    const std::optional<int> dim = given->second;
    check(!dim || (*dim >= 0 && *dim < candidate.shape.size()),
          "fully_shard: {} has shape {}, dim {} cannot be cut", candidate.name,
          to_string(candidate.shape), dim.value_or(0));
    return {dim, "override"};
  }
  if (candidate.shape.empty()) return {std::nullopt, "scalar"};
  if (options.policy == ShardPolicy::kLargestDivisible)
    return largest_divisible(candidate, ranks, options);
  return {0, "dim0"};
}

bool is_number(std::string_view text) {
  return !text.empty() &&
         std::all_of(text.begin(), text.end(), [](char c) { return c >= '0' && c <= '9'; });
}

}  // namespace

std::vector<ShardChoice> choose_shards(const std::vector<ShardCandidate>& candidates, int ranks,
                                       const FullyShardOptions& options) {
  std::vector<ShardChoice> choices;
  std::set<std::string> names;
  for (const ShardCandidate& candidate : candidates) {
    names.insert(candidate.name);
    choices.push_back(choose(candidate, ranks, options));
  }
  for (const auto& [name, dim] : options.dims)
    check(names.contains(name), "fully_shard: there is no parameter {} to choose a dim for", name);
  return choices;
}

std::string_view unit_of(std::string_view name) {
  for (std::size_t begin = 0; begin < name.size();) {
    const std::size_t dot = std::min(name.find('.', begin), name.size());
    if (is_number(name.substr(begin, dot - begin))) return name.substr(0, dot);
    begin = dot + 1;
  }
  return name.substr(0, 0);
}

std::string describe_shards(const std::vector<ShardCandidate>& candidates,
                            const std::vector<ShardChoice>& choices) {
  std::string text;
  std::set<std::string> seen;
  for (std::size_t i = 0; i < candidates.size(); ++i) {
    const ShardCandidate& candidate = candidates[i];
    const std::string_view unit = unit_of(candidate.name);
    std::string name = candidate.name;
    if (!unit.empty())
      name = fmt::format("{}.*{}", unit.substr(0, unit.rfind('.')), name.substr(unit.size()));
    const ShardChoice& choice = choices[i];
    const std::string line = fmt::format(
        "{} {} {} ({})\n", name, to_string(candidate.shape),
        choice.dim ? fmt::format("dim {}", *choice.dim) : std::string("whole"), choice.reason);
    if (seen.insert(line).second) text += line;
  }
  return text;
}

}  // namespace meshloom::parallel
