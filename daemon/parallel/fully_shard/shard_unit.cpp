// SPDX-License-Identifier: Apache-2.0
#include "daemon/parallel/fully_shard/shard_unit.h"

#include <algorithm>

#include "daemon/tensor/ops/op_support.h"
#include "kernels/base/error.h"
#include "planner/parameter_shards.h"

namespace meshloom::parallel {
namespace {

/// `count` elements of a flat tensor from `begin` on, with the shape given.
TensorView window(const Tensor& flat, std::int64_t begin, const Shape& shape) {
  auto* data = static_cast<std::byte*>(flat.view().data) +
               begin * static_cast<std::int64_t>(dtype_size(flat.dtype()));
  return make_view(data, flat.dtype(), shape, flat.device());
}

TensorView narrow(TensorView view, int dim, const planner::ShardRange& range) {
  view.data = static_cast<std::byte*>(view.data) +
              range.begin * view.strides[dim] * static_cast<std::int64_t>(dtype_size(view.dtype));
  view.shape[dim] = range.size();
  return view;
}

/// A tensor of `flat`'s storage; `view` is a part of it.
Tensor tensor_of(const Tensor& flat, const TensorView& view) {
  const std::ptrdiff_t bytes = static_cast<std::byte*>(view.data) - flat.data<std::byte>();
  return ops::alias(flat, view.shape, view.strides,
                    bytes / static_cast<std::ptrdiff_t>(dtype_size(view.dtype)));
}

/// One poll moves every collective of this rank.
bool poll_all(const std::vector<comm::WorkPtr>& works) {
  for (const comm::WorkPtr& work : works)
    if (!work->poll()) return false;
  return true;
}

void wait_all(std::vector<comm::WorkPtr>& works, Stream stream) {
  for (const comm::WorkPtr& work : works) work->enqueue_wait(stream);
  works.clear();
}

}  // namespace

ShardUnit::ShardUnit(ExecutionContext& context, const FullyShardGroups& groups, std::string name,
                     StorageProvider& values, StorageProvider& gradients)
    : context_(context),
      groups_(groups),
      name_(std::move(name)),
      values_provider_(values),
      gradients_provider_(gradients) {}

void ShardUnit::add(const std::string& name, const Tensor& leaf, int dim) {
  if (leaf.dtype() == DType::kFloat64)
    throw Unimplemented(
        fmt::format("fully_shard: {} is float64; gradients travel as float32", name));
  if (parameters_.empty()) dtype_ = leaf.dtype();
  check(leaf.dtype() == dtype_, "fully_shard: {} is {}, others of its block are {}", name,
        dtype_name(leaf.dtype()), dtype_name(dtype_));
  ShardedParameter parameter;
  parameter.name = name;
  parameter.full = leaf;
  parameter.dim = dim;
  parameter.trained = leaf.requires_grad();
  if (parameter.trained) ++trained_;
  parameters_.push_back(std::move(parameter));
}

std::size_t ShardUnit::index_of(const ShardedParameter& parameter) const {
  return static_cast<std::size_t>(&parameter - parameters_.data());
}

planner::ShardRange ShardUnit::range(const ShardedParameter& parameter, int rank) const {
  return planner::shard_range(parameter.full.shape()[parameter.dim], groups_.gather->size(), rank);
}

Shape ShardUnit::shard_shape(const ShardedParameter& parameter, int rank) const {
  Shape shape = parameter.full.shape();
  shape[parameter.dim] = range(parameter, rank).size();
  return shape;
}

std::int64_t ShardUnit::shard_size(const ShardedParameter& parameter, int rank) const {
  return numel(shard_shape(parameter, rank));
}

bool ShardUnit::direct(const ShardedParameter& parameter) const {
  return planner::shards_travel_alone(parameter.dim, shard_size(parameter, 0));
}

TensorView ShardUnit::part(const Tensor& flat, const Layout& layout,
                           const ShardedParameter& parameter, int rank) const {
  return narrow(window(flat, layout.offsets[index_of(parameter)], parameter.full.shape()),
                parameter.dim, range(parameter, rank));
}

TensorView ShardUnit::shard_part(const Tensor& flat, const Layout& layout,
                                 const ShardedParameter& parameter) const {
  const int rank = groups_.gather->rank();
  return window(flat, layout.shard_offsets[static_cast<std::size_t>(rank)][index_of(parameter)],
                shard_shape(parameter, rank));
}

ShardUnit::Layout ShardUnit::place(bool trained_alone) const {
  const auto holds = [&](const ShardedParameter& parameter) {
    return parameter.trained || !trained_alone;
  };
  Layout layout;
  for (const ShardedParameter& parameter : parameters_) {
    layout.offsets.push_back(layout.full_elements);
    if (holds(parameter))
      layout.full_elements = planner::align_shard(layout.full_elements + parameter.full.numel());
  }
  layout.packed_begin.assign(1, 0);
  for (int rank = 0; rank < groups_.gather->size(); ++rank) {
    std::vector<std::int64_t> offsets(parameters_.size());
    std::int64_t end = 0;
    for (std::size_t i = 0; i < parameters_.size(); ++i) {
      if (!holds(parameters_[i]) || direct(parameters_[i])) continue;
      offsets[i] = end;
      end += shard_size(parameters_[i], rank);
    }
    layout.packed_begin.push_back(layout.packed_begin.back() + end);
    for (std::size_t i = 0; i < parameters_.size(); ++i) {
      if (!holds(parameters_[i]) || !direct(parameters_[i])) continue;
      offsets[i] = planner::align_shard(end);
      end = offsets[i] + shard_size(parameters_[i], rank);
    }
    offsets.push_back(end);
    layout.shard_offsets.push_back(std::move(offsets));
  }
  return layout;
}

void ShardUnit::seal() {
  of_values_ = place(false);
  of_gradients_ = place(true);
  const auto me = static_cast<std::size_t>(groups_.gather->rank());
  // Peers read what is gathered, the inputs of a reduction, and what replicas sum.
  shards_ = zeros(context_, {of_values_.shard_offsets[me].back()}, dtype_, MemoryKind::kSymmetric);
  shard_grads_ = zeros(context_, {of_gradients_.shard_offsets[me].back()}, DType::kFloat32,
                       groups_.replicas != nullptr ? MemoryKind::kSymmetric : MemoryKind::kDevice);
  for (ShardedParameter& parameter : parameters_) {
    Tensor& shard = parameter.shard.value;
    shard = tensor_of(shards_, shard_part(shards_, of_values_, parameter));
    if (!parameter.trained) continue;
    shard.set_requires_grad(true);
    shard.leaf_grad()->set_buffer(
        tensor_of(shard_grads_, shard_part(shard_grads_, of_gradients_, parameter)));
  }
  has_grad_.assign(parameters_.size(), false);
  for (std::size_t i = 0; i < parameters_.size(); ++i) {
    ShardedParameter& parameter = parameters_[i];
    defer(parameter.full, &values_provider_);
    has_grad_[i] = !parameter.trained;
    if (!parameter.trained) continue;
    parameter.full_grad =
        deferred(context_, parameter.full.shape(), DType::kFloat32, &gradients_provider_);
    check_internal(parameter.full.leaf_grad() != nullptr, "fully_shard: {} collects no gradient",
                   parameter.name);
    parameter.full.leaf_grad()->set_buffer(parameter.full_grad);
  }
}

// --- Values

std::vector<TensorView> ShardUnit::packed_parts(const Tensor& packed, const Layout& layout) const {
  const std::vector<std::int64_t>& begin = layout.packed_begin;
  std::vector<TensorView> parts;
  for (std::size_t rank = 0; rank + 1 < begin.size(); ++rank)
    parts.push_back(window(packed, begin[rank], {begin[rank + 1] - begin[rank]}));
  return parts;
}

void ShardUnit::start_gather() {
  if (gathered_ || gathering_) return;
  gathering_ = true;
  values_ = empty(context_, {of_values_.full_elements}, dtype_);
  const auto me = static_cast<std::size_t>(groups_.gather->rank());
  for (const ShardedParameter& parameter : parameters_) {
    if (!direct(parameter)) continue;
    std::vector<TensorView> outputs;
    outputs.reserve(static_cast<std::size_t>(groups_.gather->size()));
    for (int rank = 0; rank < groups_.gather->size(); ++rank)
      outputs.push_back(part(values_, of_values_, parameter, rank));
    gather_works_.push_back(
        groups_.gather->all_gather(outputs, shard_part(shards_, of_values_, parameter)));
  }
  if (of_values_.packed_begin.back() == 0) return;
  packed_values_ = empty(context_, {of_values_.packed_begin.back()}, dtype_);
  gather_works_.push_back(groups_.gather->all_gather(
      packed_parts(packed_values_, of_values_),
      window(shards_, 0, {of_values_.packed_begin[me + 1] - of_values_.packed_begin[me]})));
}

void ShardUnit::unpack_values() {
  for (std::size_t i = 0; i < parameters_.size(); ++i) {
    const ShardedParameter& parameter = parameters_[i];
    if (direct(parameter)) continue;
    for (int rank = 0; rank < groups_.gather->size(); ++rank) {
      const auto r = static_cast<std::size_t>(rank);
      const Shape shape = shard_shape(parameter, rank);
      if (numel(shape) == 0) continue;
      context_.backend().copy(
          context_.kernel_context(), part(values_, of_values_, parameter, rank),
          window(packed_values_, of_values_.packed_begin[r] + of_values_.shard_offsets[r][i],
                 shape));
    }
  }
  packed_values_ = Tensor();
}

bool ShardUnit::poll_gather() { return poll_all(gather_works_); }

void ShardUnit::finish_gather() {
  if (gathered_) return;
  start_gather();
  wait_all(gather_works_, context_.kernel_context().stream);
  if (packed_values_) unpack_values();
  gathering_ = false;
  gathered_ = true;
  for (const ShardedParameter& parameter : parameters_)
    if (parameter.full.numel() > 0)
      parameter.full.storage()->set_data(static_cast<std::byte*>(
          window(values_, of_values_.offsets[index_of(parameter)], {1}).data));
}

void ShardUnit::release() {
  if (gathering_) finish_gather();
  if (!gathered_) return;
  for (const ShardedParameter& parameter : parameters_)
    if (parameter.full.numel() > 0) parameter.full.storage()->set_data(nullptr);
  values_ = Tensor();
  gathered_ = false;
}

// --- Gradients

void ShardUnit::provide_gradients() {
  check_internal(!reducing_, "fully_shard: a gradient of {} changed after it was sent", name_);
  if (grads_) return;
  grads_ = empty(context_, {of_gradients_.full_elements}, DType::kFloat32, MemoryKind::kSymmetric);
  for (const ShardedParameter& parameter : parameters_)
    if (parameter.trained && parameter.full.numel() > 0)
      parameter.full_grad.storage()->set_data(static_cast<std::byte*>(
          window(grads_, of_gradients_.offsets[index_of(parameter)], {1}).data));
}

void ShardUnit::pack_gradients() {
  packed_grads_ =
      empty(context_, {of_gradients_.packed_begin.back()}, DType::kFloat32, MemoryKind::kSymmetric);
  for (std::size_t i = 0; i < parameters_.size(); ++i) {
    const ShardedParameter& parameter = parameters_[i];
    if (!parameter.trained || direct(parameter)) continue;
    for (int rank = 0; rank < groups_.gather->size(); ++rank) {
      const auto r = static_cast<std::size_t>(rank);
      const Shape shape = shard_shape(parameter, rank);
      if (numel(shape) == 0) continue;
      context_.backend().copy(
          context_.kernel_context(),
          window(packed_grads_, of_gradients_.packed_begin[r] + of_gradients_.shard_offsets[r][i],
                 shape),
          part(grads_, of_gradients_, parameter, rank));
    }
  }
}

void ShardUnit::start_reduce(bool first) {
  provide_gradients();
  reducing_ = true;
  reduce_adds_ = !first;
  for (std::size_t i = 0; i < parameters_.size(); ++i) {
    const ShardedParameter& parameter = parameters_[i];
    if (!parameter.trained) continue;
    const bool present = parameter.full.leaf_grad()->has_value();
    has_grad_[i] = present || (has_grad_[i] && reduce_adds_);
    if (!present && parameter.full.numel() > 0)
      context_.backend().fill(context_.kernel_context(), parameter.full_grad.view(), 0.0);
  }
  if (reduce_adds_) reduced_ = zeros(context_, shard_grads_.shape(), DType::kFloat32);
  const Tensor& target = reduce_adds_ ? reduced_ : shard_grads_;
  for (const ShardedParameter& parameter : parameters_) {
    if (!parameter.trained || !direct(parameter)) continue;
    std::vector<TensorView> inputs;
    inputs.reserve(static_cast<std::size_t>(groups_.gather->size()));
    for (int rank = 0; rank < groups_.gather->size(); ++rank)
      inputs.push_back(part(grads_, of_gradients_, parameter, rank));
    reduce_works_.push_back(groups_.reduce->reduce_scatter(
        shard_part(target, of_gradients_, parameter), inputs, comm::ReduceOp::kSum));
  }
  if (of_gradients_.packed_begin.back() == 0) return;
  pack_gradients();
  const auto me = static_cast<std::size_t>(groups_.gather->rank());
  reduce_works_.push_back(groups_.reduce->reduce_scatter(
      window(target, 0, {of_gradients_.packed_begin[me + 1] - of_gradients_.packed_begin[me]}),
      packed_parts(packed_grads_, of_gradients_), comm::ReduceOp::kSum));
}

void ShardUnit::finish_reduce(bool last) {
  wait_all(reduce_works_, context_.kernel_context().stream);
  packed_grads_ = grads_ = Tensor();
  if (reduce_adds_ && shard_grads_.numel() > 0)
    context_.backend().binary(context_.kernel_context(), kernels::BinaryOp::kAdd,
                              shard_grads_.view(), shard_grads_.view(), reduced_.view());
  reduced_ = Tensor();
  reducing_ = false;
  for (const ShardedParameter& parameter : parameters_) {
    if (!parameter.trained) continue;
    parameter.full.leaf_grad()->clear();
    if (parameter.full.numel() > 0) parameter.full_grad.storage()->set_data(nullptr);
  }
  if (last) start_replicas();
}

void ShardUnit::start_replicas() {
  if (groups_.replicas != nullptr && shard_grads_.numel() > 0)
    replica_work_ = groups_.replicas->all_reduce(shard_grads_.view(), comm::ReduceOp::kSum);
}

bool ShardUnit::poll_reduce() { return poll_all(reduce_works_); }

void ShardUnit::finish_replicas() {
  if (replica_work_) replica_work_->enqueue_wait(context_.kernel_context().stream);
  replica_work_.reset();
}

}  // namespace meshloom::parallel
