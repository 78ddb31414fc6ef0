// SPDX-License-Identifier: Apache-2.0
#include "daemon/parallel/context_parallel/block_positions.h"

#include "daemon/tensor/ops/op_support.h"
#include "kernels/base/error.h"

namespace meshloom::parallel {
namespace {

using planner::Rotate;

/// The positions of a step's keys as they come.
std::vector<std::int64_t> keys_of_step(const RowGroup& group, std::size_t step, Rotate rotate) {
  const planner::AttentionStep& of = group.steps[step];
  if (of.keys.empty()) return {};
  const bool all = step == 0 || rotate == Rotate::kAllGather || rotate == Rotate::kAllToAll;
  return elements(all ? group.parts[static_cast<std::size_t>(of.source)].keys : of.keys);
}

}  // namespace

BlockPositions::BlockPositions(ExecutionContext& context, std::span<const RowGroup> groups,
                               int member, Rotate rotate) {
  std::vector<std::int64_t> values, documents;
  const auto append = [&](const RowGroup& group, const std::vector<std::int64_t>& positions) {
    values.insert(values.end(), positions.begin(), positions.end());
    if (!group.documents) return;
    for (const std::int64_t p : positions)
      documents.push_back(group.documents->ids[static_cast<std::size_t>(p)]);
  };
  const auto size = [&] { return static_cast<std::int64_t>(values.size()); };
  for (const RowGroup& group : groups) {
    Places places{size(), {}, group.documents != nullptr};
    append(group, elements(group.parts[static_cast<std::size_t>(member)].queries));
    for (std::size_t step = 0; step < group.steps.size(); ++step) {
      places.keys.push_back(size());
      append(group, keys_of_step(group, step, rotate));
    }
    places.keys.push_back(size());
    groups_.push_back(std::move(places));
  }
  count_ = size();
  check_internal(documents.empty() || documents.size() == values.size(),
                 "some rows of a batch have documents and some have none");
  values.insert(values.end(), documents.begin(), documents.end());
  values_ = from_values(context, {static_cast<std::int64_t>(values.size())},
                        std::span<const std::int64_t>(values));
}

void BlockPositions::tell(kernels::AttentionOptions& options, std::size_t group, int first,
                          int end) const {
  const Places& places = groups_[group];
  const std::int64_t queries = places.keys.front() - places.begin;
  const std::int64_t from = places.keys[static_cast<std::size_t>(first)];
  const std::int64_t keys = places.keys[static_cast<std::size_t>(end)] - from;
  options.query_positions = ops::alias(values_, {queries}, {1}, places.begin).view();
  options.key_positions = ops::alias(values_, {keys}, {1}, from).view();
  if (!places.documents) return;
  options.query_documents =
      ops::alias(values_, {1, queries}, {queries, 1}, count_ + places.begin).view();
  options.key_documents = ops::alias(values_, {1, keys}, {keys, 1}, count_ + from).view();
}

}  // namespace meshloom::parallel
