// SPDX-License-Identifier: Apache-2.0
#include "daemon/parallel/gradient_reducer.h"

#include <algorithm>

#include "daemon/tensor/ops/op_support.h"
#include "kernels/base/error.h"

namespace meshloom::parallel {

std::vector<nn::NamedParameter> trained_parameters(std::vector<nn::NamedParameter> parameters) {
  std::erase_if(parameters,
                [](const nn::NamedParameter& p) { return !p.parameter->value.requires_grad(); });
  return parameters;
}

GradientReducer::GradientReducer(ExecutionContext& context, comm::ProcessGroup& group,
                                 const std::vector<nn::NamedParameter>& parameters,
                                 const GradientReducerOptions& options)
    : context_(context), group_(group) {
  if (group.size() == 1) return;
  std::vector<std::int64_t> sizes;
  for (const nn::NamedParameter& p : parameters) {
    if (p.parameter->value.dtype() == DType::kFloat64)
      throw Unimplemented(
          fmt::format("gradient reducer: {} is float64; gradients travel as float32", p.name));
    sizes.push_back(p.parameter->value.numel());
  }
  const auto elements =
      std::max<std::int64_t>(1, options.bucket_bytes / std::int64_t{sizeof(float)});
  for (const planner::GradientBucket& plan : planner::plan_gradient_buckets(sizes, elements))
    buckets_.push_back(make_bucket(parameters, plan));
  for (std::size_t b = 0; b < buckets_.size(); ++b)
    for (std::size_t s = 0; s < buckets_[b].slots.size(); ++s)
      buckets_[b].slots[s].leaf->set_ready_hook([this, b, s] { on_ready(b, s); });
}

GradientReducer::~GradientReducer() {
  for (Bucket& bucket : buckets_)
    for (Slot& slot : bucket.slots) slot.leaf->set_ready_hook({});
}

GradientReducer::Bucket GradientReducer::make_bucket(
    const std::vector<nn::NamedParameter>& parameters, const planner::GradientBucket& plan) {
  const auto count = static_cast<std::int64_t>(plan.slots.size());
  Bucket bucket;
  // Gaps between slots travel too: they are zero from here on.
  bucket.flat = zeros(context_, {plan.size + count}, DType::kFloat32, MemoryKind::kSymmetric);
  bucket.flags = ops::alias(bucket.flat, {count}, {1}, plan.size);
  for (const planner::BucketSlot& place : plan.slots) {
    const nn::NamedParameter& named = parameters[static_cast<std::size_t>(place.parameter)];
    const Tensor& value = named.parameter->value;
    check_internal(value.leaf_grad() != nullptr, "gradient reducer: {} collects no gradient",
                   named.name);
    const Strides dense = contiguous_strides(value.shape());
    Slot slot{value.leaf_grad(), named.name,
              ops::alias(bucket.flat, value.shape(), dense, place.offset)};
    slot.leaf->set_buffer(slot.gradient);
    bucket.slots.push_back(std::move(slot));
  }
  return bucket;
}

void GradientReducer::begin() {
  if (group_.size() == 1) return;
  check_internal(!poll_point_, "gradient reducer: begin was called twice");
  failure_ = nullptr;
  next_ = 0;
  for (Bucket& bucket : buckets_) {
    bucket.missing = bucket.slots.size();
    for (Slot& slot : bucket.slots) slot.ready = false;
  }
  poll_point_.emplace(context_, [this] { poll(); });
}

void GradientReducer::on_ready(std::size_t b, std::size_t s) {
  if (!poll_point_) return;
  Bucket& bucket = buckets_[b];
  Slot& slot = bucket.slots[s];
  check_internal(b >= next_, "gradient reducer: the gradient of {} changed after it was sent",
                 slot.name);
  if (slot.ready) return;
  slot.ready = true;
  --bucket.missing;
  send_full(false);
}

void GradientReducer::send_full(bool rest) {
  try {
    while (next_ < buckets_.size() && (rest || buckets_[next_].missing == 0))
      send(buckets_[next_++]);
  } catch (...) {
    if (!failure_) failure_ = std::current_exception();
    throw;
  }
}

void GradientReducer::send(Bucket& bucket) {
  std::vector<float> flags;
  bucket.all_here = true;
  for (const Slot& slot : bucket.slots) {
    bucket.all_here = bucket.all_here && slot.leaf->has_value();
    flags.push_back(slot.leaf->has_value() ? 1.0f : 0.0f);
    if (!slot.leaf->has_value())
      context_.backend().fill(context_.kernel_context(), slot.gradient.view(), 0.0);
  }
  context_.backend().copy_from_host(context_.kernel_context(), bucket.flags.view(),
                                    make_view(flags.data(), DType::kFloat32, bucket.flags.shape()));
  bucket.work = group_.all_reduce(bucket.flat.view(), comm::ReduceOp::kSum);
}

void GradientReducer::poll() {
  // One poll moves every collective of this rank.
  if (next_ == 0) return;
  try {
    buckets_[next_ - 1].work->poll();
  } catch (...) {
    if (!failure_) failure_ = std::current_exception();
    throw;
  }
}

void GradientReducer::finish() {
  if (group_.size() == 1) return;
  if (!poll_point_) begin();
  try {
    if (failure_) std::rethrow_exception(failure_);
    send_full(true);
    for (Bucket& bucket : buckets_) {
      bucket.work->enqueue_wait(context_.kernel_context().stream);
      // What this rank has, all have. Only for the rest are the flags read.
      if (bucket.all_here) continue;
      const std::vector<double> flags = bucket.flags.to_vector();
      for (std::size_t s = 0; s < bucket.slots.size(); ++s) {
        if (flags[s] > 0.0) {
          bucket.slots[s].leaf->mark_written();
        } else {
          bucket.slots[s].leaf->clear();
        }
      }
    }
  } catch (...) {
    end_step();
    throw;
  }
  end_step();
}

void GradientReducer::end_step() {
  poll_point_.reset();
  for (Bucket& bucket : buckets_) bucket.work.reset();
}

}  // namespace meshloom::parallel
