// SPDX-License-Identifier: Apache-2.0
#include "daemon/dtensor/mesh_collectives.h"

#include <numeric>

#include "daemon/comm/exposure.h"
#include "daemon/tensor/execution_context.h"
#include "daemon/tensor/ops/op_support.h"
#include "daemon/tensor/ops/shape.h"
#include "kernels/base/error.h"

namespace meshloom::dtensor {
namespace {

class TensorInFlight final : public PendingTensor {
 public:
  /// `sent` is read until the collective has ended.
  TensorInFlight(Tensor sent, Tensor result, comm::WorkPtr work)
      : sent_(std::move(sent)), result_(std::move(result)), work_(std::move(work)) {}
  bool poll() override { return work_->poll(); }
  Tensor wait() override {
    work_->enqueue_wait(result_.context().kernel_context().stream);
    return std::move(result_);
  }

 private:
  Tensor sent_, result_;
  comm::WorkPtr work_;
};

class TensorsInSight final : public ExposedTensors {
 public:
  /// `own` is read by others until the exposure is closed.
  TensorsInSight(std::vector<Tensor> own, std::unique_ptr<comm::Exposure> exposure)
      : own_(std::move(own)), exposure_(std::move(exposure)) {}

  std::vector<Tensor> of(int rank) override {
    std::vector<Tensor> tensors;
    // The exposure keeps the memory of peers mapped.
    for (const TensorView& view : exposure_->of(rank))
      tensors.push_back(from_external(own_[0].context(), view, nullptr));
    return tensors;
  }
  void release() override { exposure_->release(); }
  void close() override { exposure_->wait_host(); }

 private:
  std::vector<Tensor> own_;
  std::unique_ptr<comm::Exposure> exposure_;
};

/// Pieces of a contiguous tensor, one after the other.
std::vector<TensorView> pieces_of(const Tensor& x, std::span<const std::int64_t> sizes) {
  std::vector<TensorView> pieces;
  std::int64_t first = 0;
  for (const std::int64_t size : sizes) {
    pieces.push_back(ops::alias(x, {size}, {1}, first).view());
    first += size;
  }
  return pieces;
}

}  // namespace

PendingTensorPtr MeshCollectives::all_gather(const Tensor& x, const std::vector<int>& mesh_dims) {
  comm::ProcessGroup& group = mesh_.group(mesh_dims);
  const Tensor sent = ops::contiguous(x.detach());
  Shape shape = x.shape();
  shape.insert(0, group.size());
  Tensor stacked = empty(x.context(), shape, x.dtype());
  std::vector<TensorView> parts;
  parts.reserve(static_cast<std::size_t>(group.size()));
  for (int rank = 0; rank < group.size(); ++rank)
    parts.push_back(
        ops::alias(stacked, x.shape(), contiguous_strides(x.shape()), rank * x.numel()).view());
  comm::WorkPtr work = group.all_gather(parts, sent.view());
  return std::make_unique<TensorInFlight>(sent, std::move(stacked), std::move(work));
}

PendingTensorPtr MeshCollectives::all_reduce(const Tensor& x, planner::PartialOp op,
                                             const std::vector<int>& mesh_dims) {
  check(op != planner::PartialOp::kAvg, "all_reduce: expected a sum, maximum or minimum");
  comm::ReduceOp reduce = comm::ReduceOp::kSum;
  if (op == planner::PartialOp::kMax) reduce = comm::ReduceOp::kMax;
  if (op == planner::PartialOp::kMin) reduce = comm::ReduceOp::kMin;
  Tensor sum = empty(x.context(), x.shape(), x.dtype());
  copy_into(sum, x.detach());
  comm::WorkPtr work = mesh_.group(mesh_dims).all_reduce(sum.view(), reduce);
  return std::make_unique<TensorInFlight>(Tensor(), std::move(sum), std::move(work));
}

PendingTensorPtr MeshCollectives::send_recv(const Tensor& x, int to, int from,
                                            const Shape& received,
                                            const std::vector<int>& mesh_dims) {
  comm::ProcessGroup& group = mesh_.group(mesh_dims);
  const Tensor sent = ops::contiguous(x.detach());
  Tensor result = empty(x.context(), received, x.dtype());
  const TensorView nothing = make_view(nullptr, x.dtype(), Shape{0}, x.device());
  std::vector<TensorView> outputs(static_cast<std::size_t>(group.size()), nothing);
  std::vector<TensorView> inputs = outputs;
  inputs.at(static_cast<std::size_t>(to)) = sent.view();
  outputs.at(static_cast<std::size_t>(from)) = result.view();
  comm::WorkPtr work = group.send_recv(outputs, inputs);
  return std::make_unique<TensorInFlight>(sent, std::move(result), std::move(work));
}

PendingTensorPtr MeshCollectives::all_to_all(const Tensor& x, std::span<const std::int64_t> sent,
                                             std::span<const std::int64_t> received,
                                             const std::vector<int>& mesh_dims) {
  const Tensor from = ops::contiguous(x.detach());
  const std::int64_t all = std::accumulate(received.begin(), received.end(), std::int64_t{0});
  Tensor to = empty(x.context(), Shape{all}, x.dtype());
  comm::WorkPtr work =
      mesh_.group(mesh_dims).all_to_all(pieces_of(to, received), pieces_of(from, sent));
  return std::make_unique<TensorInFlight>(from, std::move(to), std::move(work));
}

Tensor MeshCollectives::exposable(const Tensor& x, const std::vector<int>& mesh_dims) {
  comm::ProcessGroup& group = mesh_.group(mesh_dims);
  // Over several hosts some of the ranks cannot read it where it lies.
  const bool shares = group.symmetric_memory() != nullptr && group.hosts().empty();
  if (!shares || x.numel() == 0 || comm::is_in_symmetric_memory(group, x.view())) return x;
  Tensor copy = empty(x.context(), x.shape(), x.dtype(), MemoryKind::kSymmetric);
  copy_into(copy, x.detach());
  return copy;
}

std::unique_ptr<ExposedTensors> MeshCollectives::expose(std::span<const Tensor> tensors,
                                                        planner::CollectiveKind stands_for,
                                                        std::int64_t sent,
                                                        const std::vector<int>& mesh_dims) {
  check_internal(!tensors.empty(), "expose: no tensors");
  std::vector<Tensor> own;
  std::vector<TensorView> views;
  for (const Tensor& x : tensors) {
    own.push_back(exposable(x, mesh_dims));
    views.push_back(own.back().view());
  }
  const comm::CollectiveKind kind = stands_for == planner::CollectiveKind::kAllGather
                                        ? comm::CollectiveKind::kAllGather
                                        : comm::CollectiveKind::kAllToAll;
  auto exposure = comm::expose(mesh_.group(mesh_dims), kind, views,
                               static_cast<std::size_t>(sent) * dtype_size(tensors[0].dtype()));
  if (!exposure) return nullptr;
  return std::make_unique<TensorsInSight>(std::move(own), std::move(exposure));
}

}  // namespace meshloom::dtensor
