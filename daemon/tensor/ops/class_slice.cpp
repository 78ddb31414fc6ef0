// SPDX-License-Identifier: Apache-2.0
#include "daemon/tensor/ops/class_slice.h"

#include <algorithm>
#include <vector>

#include "daemon/tensor/ops/op_support.h"
#include "daemon/tensor/ops/shape.h"

namespace meshloom::ops {

Tensor slice_places(const Tensor& ids_given, const planner::IndexRanges& slice,
                    std::optional<std::int64_t> special, std::int64_t special_place) {
  const Tensor ids = contiguous(ids_given);
  const Tensor places = empty(ids.context(), ids.shape(), DType::kInt64);
  std::vector<kernels::IdRange> ranges;
  for (const planner::ShardRange& range : slice) ranges.push_back({range.begin, range.end});
  kernels::IdSlice to{.ranges = ranges};
  if (special) to = {ranges, *special, special_place};
  ExecutionContext& context = ids.context();
  context.backend().slice_ids(context.kernel_context(), places.view(), ids.view(), to);
  return places;
}

SliceExchange::SliceExchange(const LocalCall& call, int input, int class_dim)
    : call_(call), context_(call.inputs[static_cast<std::size_t>(input)].context()) {
  const planner::DTensorSpec& spec = *call.decision.inputs[static_cast<std::size_t>(input)];
  total_ = spec.shape()[class_dim];
  widest_ = 0;
  for (int rank = 0; rank < spec.mesh().size(); ++rank)
    widest_ = std::max(widest_, spec.local_shape(spec.mesh().coordinates(rank))[class_dim]);
}

SliceExchange::Pending SliceExchange::begin(const TensorView& losses, const TensorView& lse,
                                            const TensorView& targets) const {
  const Tensor mine = empty(context_, {2, losses.size(0)}, losses.dtype);
  const kernels::KernelContext& kernel = context_.kernel_context();
  context_.backend().copy(kernel, alias(mine, losses.shape, {1}).view(), losses);
  context_.backend().copy(kernel, alias(mine, lse.shape, {1}, losses.size(0)).view(), lse);
  Pending pending;
  pending.stacked_ =
      call_.collectives.all_gather(mine, call_.decision.mesh_dims(planner::MeshRole::kVocabulary));
  pending.rows_ = {{}, targets, losses, lse};
  return pending;
}

void SliceExchange::Pending::finish() {
  const Tensor stacked = stacked_->wait();
  ExecutionContext& context = stacked.context();
  context.backend().combine_class_slices(context.kernel_context(), rows_, stacked.view(),
                                         kIgnoredClass);
}

ClassTargets whole_targets(const char* op, const Tensor& targets, std::int64_t classes,
                           std::int64_t ignored) {
  check_indices(op, "target", targets, classes, ignored);
  ClassTargets result{contiguous(targets), {}, {}};
  result.options.ignore_index = ignored;
  return result;
}

ClassTargets slice_targets(const char* op, const LocalCall& call, const Tensor& targets, int input,
                           int class_dim, std::int64_t ignored) {
  const SliceExchange exchange(call, input, class_dim);
  const planner::IndexRanges& slice = call.parts[static_cast<std::size_t>(input)].ranges(class_dim);
  check_indices(op, "target", targets, exchange.slice().total, ignored);
  ClassTargets result{slice_places(targets, slice, ignored, kIgnoredClass), {}, exchange};
  result.options.ignore_index = kIgnoredClass;
  result.options.slice = exchange.slice();
  return result;
}

}  // namespace meshloom::ops
