// SPDX-License-Identifier: Apache-2.0
#include "daemon/tensor/ops/class_slice.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "daemon/tensor/ops/op_support.h"
#include "daemon/tensor/ops/part_positions.h"
#include "daemon/tensor/ops/shape.h"
#include "kernels/base/error.h"

namespace meshloom::ops {
namespace {

/// stacked [ranks, 2, rows]: of each rank its losses (its share, without lse) and lse. In rank
/// order and in double: every rank gets the same bits.
template <typename T>
void combine_rows(const Tensor& stacked, const std::int64_t* targets, T* losses, T* lse) {
  const std::int64_t ranks = stacked.size(0), rows = stacked.size(2);
  const auto* all = stacked.data<T>();
  const auto at = [&](std::int64_t rank, std::int64_t which, std::int64_t row) {
    return static_cast<double>(all[(rank * 2 + which) * rows + row]);
  };
  for (std::int64_t row = 0; row < rows; ++row) {
    double top = -std::numeric_limits<double>::infinity();
    for (std::int64_t r = 0; r < ranks; ++r) top = std::max(top, at(r, 1, row));
    double exp_sum = 0.0;
    double loss = 0.0;
    for (std::int64_t r = 0; r < ranks; ++r) {
      const double own = at(r, 1, row);
      exp_sum += own == top ? 1.0 : std::exp(own - top);
      loss += at(r, 0, row);
    }
    const double total = top + std::log(exp_sum);
    lse[row] = static_cast<T>(total);
    losses[row] = targets[row] == kIgnoredClass ? T{0} : static_cast<T>(total + loss);
  }
}

std::int64_t widest_part(const planner::DTensorSpec& spec, int dim) {
  std::int64_t widest = 0;
  for (int rank = 0; rank < spec.mesh().size(); ++rank)
    widest = std::max(widest, spec.local_shape(spec.mesh().coordinates(rank))[dim]);
  return widest;
}

}  // namespace

Tensor slice_places(const char* op, const char* what, const Tensor& ids_given,
                    const planner::IndexRanges& slice, std::int64_t vocabulary,
                    std::optional<std::int64_t> ignored) {
  const Tensor ids = contiguous(ids_given);
  const Tensor places = empty(ids.context(), ids.shape(), DType::kInt64);
  const auto* from = ids.data<std::int64_t>();
  auto* to = places.data<std::int64_t>();
  for (std::int64_t i = 0, n = ids.numel(); i < n; ++i) {
    if (from[i] == ignored) {
      to[i] = kIgnoredClass;
      continue;
    }
    check(from[i] >= 0 && from[i] < vocabulary, "{}: {} at element {} is {}, outside [0, {})", op,
          what, i, from[i], vocabulary);
    to[i] = local_index(slice, from[i]);
  }
  return places;
}

SliceExchange::SliceExchange(const LocalCall& call, int input, int class_dim)
    : call_(call), context_(call.inputs[static_cast<std::size_t>(input)].context()) {
  const planner::DTensorSpec& spec = *call.decision.inputs[static_cast<std::size_t>(input)];
  total_ = spec.shape()[class_dim];
  widest_ = widest_part(spec, class_dim);
}

SliceExchange::Pending SliceExchange::begin(const TensorView& losses, const TensorView& lse,
                                            const TensorView& targets) const {
  const Tensor mine = empty(context_, {2, losses.size(0)}, losses.dtype);
  std::memcpy(mine.data<std::byte>(), losses.data, losses.bytes());
  std::memcpy(mine.data<std::byte>() + losses.bytes(), lse.data, lse.bytes());
  Pending pending;
  pending.stacked_ =
      call_.collectives.all_gather(mine, call_.decision.mesh_dims(planner::MeshRole::kVocabulary));
  pending.losses_ = losses;
  pending.lse_ = lse;
  pending.targets_ = targets;
  return pending;
}

void SliceExchange::Pending::finish() {
  const Tensor stacked = stacked_->wait();
  const auto* targets = targets_.as<const std::int64_t>();
  if (losses_.dtype == DType::kFloat64)
    combine_rows(stacked, targets, losses_.as<double>(), lse_.as<double>());
  else
    combine_rows(stacked, targets, losses_.as<float>(), lse_.as<float>());
}

ClassTargets whole_targets(const char* op, const Tensor& targets, std::int64_t classes,
                           std::int64_t ignored) {
  check_indices(op, "target", targets, classes, ignored);
  ClassTargets result{contiguous(targets), {}, {}};
  result.options.ignore_index = ignored;
  return result;
}

ClassTargets slice_targets(const char* op, const LocalCall& call, int input, int class_dim,
                           std::int64_t ignored) {
  const SliceExchange exchange(call, input, class_dim);
  const planner::IndexRanges& slice = call.parts[static_cast<std::size_t>(input)].ranges(class_dim);
  ClassTargets result{
      slice_places(op, "target", call.inputs.back(), slice, exchange.slice().total, ignored),
      {},
      exchange};
  result.options.ignore_index = kIgnoredClass;
  result.options.slice = exchange.slice();
  return result;
}

}  // namespace meshloom::ops
