// SPDX-License-Identifier: Apache-2.0
#include "daemon/parallel/context_parallel/sequence_plan.h"

#include <algorithm>

#include "daemon/tensor/ops/op_support.h"
#include "daemon/tensor/ops/shape.h"

namespace meshloom::parallel {
namespace {

using planner::IndexRanges;
using planner::LocalPart;
using planner::MeshRole;
using planner::SequencePart;

/// Those of the layers of a model, which may differ in their windows, in a step and an evaluation.
constexpr std::size_t kMostPlans = 16;

/// What every rank along `mesh_dims` holds of an input; ranks count in row-major order.
std::vector<LocalPart> parts_of_ranks(const LocalCall& call, std::size_t input,
                                      const std::vector<int>& mesh_dims, int ranks) {
  const planner::DTensorSpec& spec = *call.decision.inputs[input];
  std::vector<LocalPart> parts;
  for (int rank = 0; rank < ranks; ++rank) {
    std::vector<int> coordinates(call.coordinates.begin(), call.coordinates.end());
    int rest = rank;
    for (auto dim = mesh_dims.rbegin(); dim != mesh_dims.rend(); ++dim) {
      const int size = spec.mesh().dims()[static_cast<std::size_t>(*dim)].size;
      coordinates[static_cast<std::size_t>(*dim)] = rest % size;
      rest /= size;
    }
    parts.push_back(spec.local_part(coordinates));
  }
  return parts;
}

bool rows_differ(const std::vector<LocalPart>& parts) {
  return std::any_of(parts.begin(), parts.end(),
                     [](const LocalPart& part) { return !part.is_product(); });
}

IndexRanges joined(const std::vector<LocalPart>& parts, int first, int count, std::int64_t row) {
  IndexRanges all;
  for (int rank = first; rank < first + count; ++rank)
    for (const planner::ShardRange& range :
         parts[static_cast<std::size_t>(rank)].ranges_of_row(kSequenceDim, row))
      append_range(all, range);
  return all;
}

class PlanMaker {
 public:
  /// `documents`: null if there are none.
  PlanMaker(const LocalCall& call, const planner::AttentionMask& mask, int neighbours,
            const planner::DocumentRows* documents)
      : call_(call), mask_(mask), documents_(documents) {
    plan_.mesh_dims = call.decision.mesh_dims(MeshRole::kSequence);
    plan_.ranks = call.collectives.size(plan_.mesh_dims);
    plan_.rank = call.collectives.rank(plan_.mesh_dims);
    plan_.neighbours = neighbours;
    keys_whole_ = call.decision.inputs[kKey]->sharding_dims(kSequenceDim).empty();
    for (int rank = plan_.rank % neighbours; rank < plan_.ranks; rank += neighbours)
      plan_.members.push_back(rank);
    plan_.member = plan_.rank / neighbours;
    if (keys_whole_) {
      plan_.neighbours = 1;
      plan_.members = {plan_.rank};
      plan_.member = 0;
    }
  }

  SequencePlan make(planner::Rotate rotate) {
    queries_ = parts_of_ranks(call_, kQuery, plan_.mesh_dims, plan_.ranks);
    keys_ = parts_of_ranks(call_, kKey, plan_.mesh_dims, plan_.ranks);
    for (int r = 0; r < plan_.ranks; ++r) {
      plan_.queries.push_back(queries_[static_cast<std::size_t>(r)].shape()[kSequenceDim]);
      plan_.keys.push_back(keys_[static_cast<std::size_t>(r)].shape()[kSequenceDim]);
    }
    if (const planner::SpecPtr& bias = call_.decision.inputs[kBias]) {
      const int dim = bias->shape().size() - 2;
      plan_.bias_by_query = dim >= 0 && !bias->sharding_dims(dim).empty();
    }
    const std::int64_t rows = call_.inputs[kQuery].size(0);
    const bool alone = rows_differ(queries_) || rows_differ(keys_) || documents_ != nullptr;
    for (std::int64_t row = 0; row < rows; row += alone ? 1 : rows)
      plan_.groups.push_back(make_group(row, alone ? 1 : rows));
    plan_.positions =
        BlockPositions(call_.inputs[kQuery].context(), plan_.groups, plan_.member, rotate);
    return std::move(plan_);
  }

 private:
  RowGroup make_group(std::int64_t row, std::int64_t count) const {
    RowGroup group{row, count, {}, {}, {}, nullptr};
    planner::RowMask mask{mask_, nullptr};
    if (documents_ != nullptr) {
      group.documents = (*documents_)[static_cast<std::size_t>(row)];
      mask.documents = group.documents->documents;
    }
    for (const int member : plan_.members) {
      const int first = member - member % plan_.neighbours;
      group.parts.push_back({joined(queries_, first, plan_.neighbours, row),
                             joined(keys_, first, plan_.neighbours, row)});
    }
    group.steps = planner::attention_schedule(plan_.member, group.parts, mask);
    group.requested = planner::requested_keys(plan_.member, group.parts, mask);
    return group;
  }

  const LocalCall& call_;
  const planner::AttentionMask& mask_;
  const planner::DocumentRows* documents_;
  SequencePlan plan_;
  bool keys_whole_ = false;
  std::vector<LocalPart> queries_, keys_;
};

bool same_layout(const planner::SpecPtr& a, const planner::SpecPtr& b) {
  return a == b || (a != nullptr && b != nullptr && *a == *b);
}

}  // namespace

bool SequencePlanCache::Key::operator==(const Key& other) const {
  const bool same_documents =
      !documents.owner_before(other.documents) && !other.documents.owner_before(documents);
  return same_documents && mask == other.mask && neighbours == other.neighbours &&
         coordinates == other.coordinates && same_layout(queries, other.queries) &&
         same_layout(keys, other.keys) && same_layout(bias, other.bias);
}

std::shared_ptr<const SequencePlan> SequencePlanCache::plan(const LocalCall& call,
                                                            const ops::SdpaOptions& options,
                                                            int neighbours) {
  const auto& inputs = call.decision.inputs;
  const Tensor& ids = call.inputs[kDocuments];
  const Dims& place = call.attributes.dims;
  const std::int64_t shift =
      options.causal_bottom_right ? place[planner::kKeys] - place[planner::kQueries] : 0;
  std::shared_ptr<const planner::DocumentRows> rows;
  // Rows that the host told are those of the whole batch, of which queries may be a part.
  const std::int64_t own_rows = call.inputs[kQuery].size(0);
  const bool are_told =
      options.document_rows && static_cast<std::int64_t>(options.document_rows->size()) == own_rows;
  if (ids) rows = are_told ? options.document_rows : documents_.rows(ids);
  std::erase_if(entries_, [](const Entry& entry) {
    return entry.key.has_documents && entry.key.documents.expired();
  });
  Key key{inputs[kQuery],
          inputs[kKey],
          inputs[kBias],
          {call.coordinates.begin(), call.coordinates.end()},
          {options.is_causal, shift, options.window_left, options.window_right},
          neighbours,
          rows != nullptr,
          rows};
  const auto known = std::find_if(entries_.begin(), entries_.end(),
                                  [&](const Entry& entry) { return entry.key == key; });
  if (known != entries_.end()) return known->plan;
  auto plan = std::make_shared<const SequencePlan>(
      PlanMaker(call, key.mask, neighbours, rows.get()).make(rotate_));
  ++made_;
  if (entries_.size() == kMostPlans) entries_.erase(entries_.begin());
  entries_.push_back({std::move(key), plan});
  return plan;
}

}  // namespace meshloom::parallel
