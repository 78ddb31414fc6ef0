// SPDX-License-Identifier: Apache-2.0
#include "daemon/comm/symm_mem/fused/pipeline.h"

#include <algorithm>
#include <cstring>

#include "daemon/comm/symm_mem/fused/layout.h"
#include "kernels/base/error.h"
#include "kernels/base/integer_math.h"
#include "planner/shard.h"

namespace meshloom::comm {
namespace {

std::size_t aligned(std::size_t bytes) { return round_up<std::size_t>(bytes, 64); }

std::size_t bytes_of(const Shape& shape, DType dtype) {
  return static_cast<std::size_t>(numel(shape)) * dtype_size(dtype);
}

/// A view `bytes` behind the begin of a rank's workspace; `bytes` is a multiple of 64.
TensorView view_at(const SymmetricBuffer& workspace, int rank, std::size_t bytes,
                   const Shape& shape, DType dtype) {
  return workspace.view(rank, shape, dtype, static_cast<std::int64_t>(bytes / dtype_size(dtype)));
}

}  // namespace

void check_splits(const char* op, const SymmetricGroup& group, int splits) {
  const int most = std::min(kMostSplits, group.channels());
  check(splits >= 1 && splits <= most, "{}: {} splits, expected 1 to {}", op, splits, most);
}

// --- Gather and consume

GatherPipeline::GatherPipeline(ExecutionContext& context, SymmetricGroup& group, GatherCall call)
    : context_(context), group_(group), call_(std::move(call)) {
  const TensorView& shard = call_.shard;
  check(shard.ndim() >= 1 && call_.free_dim >= 0 && call_.free_dim < shard.ndim(),
        "{}: a shard of shape {} has no dim {}", call_.op, shard.shape, call_.free_dim);
  check(!call_.symmetric ||
            (shard.contiguous() &&
             call_.symmetric->view(group.rank(), shard.shape, shard.dtype).data == shard.data),
        "{}: the shard of shape {} and strides {} does not lie as it did in its rendezvous",
        call_.op, shard.shape, shard.strides);
  check_splits(call_.op, group_, call_.splits);
  std::vector<AgreedValue> agreed = call_.agreed;
  agreed.push_back({"symmetric memory of the shard", call_.symmetric != nullptr});
  RankCard mine =
      make_card(call_.op, shard.shape, shard.dtype, call_.free_dim, call_.splits, agreed);
  mine.side = call_.side.defined() ? call_.side.numel() : 0;
  begins_.push_back(0);
  std::size_t most = 0;
  for (const RankCard& card : exchange_cards(group_, mine, agreed)) {
    shapes_.push_back(card.shape());
    sides_.push_back(card.side);
    begins_.push_back(begins_.back() + card.sizes[call_.free_dim]);
    const std::size_t data = call_.symmetric ? 0 : bytes_of(shapes_.back(), shard.dtype);
    most = std::max(most, aligned(static_cast<std::size_t>(card.side) * 4) + data);
  }
  workspace_ = group_.workspace(kCardBytes + most);
}

GatherPiece GatherPipeline::piece(int source, int split) const {
  const auto from = static_cast<std::size_t>(source);
  const Shape& shape = shapes_[from];
  const planner::ShardRange range = planner::shard_range(shape[0], call_.splits, split);
  const TensorView side =
      view_at(*workspace_, source, kCardBytes, Shape{sides_[from]}, DType::kFloat32);
  const DType dtype = call_.shard.dtype;
  TensorView rows;
  if (source == group_.rank() && call_.shard.contiguous())
    rows = call_.shard;
  else if (call_.symmetric)
    rows = call_.symmetric->view(source, shape, dtype);
  else
    rows = view_at(*workspace_, source, kCardBytes + aligned(side.bytes()), shape, dtype);
  return {rows_of(rows, range.begin, range.size()), side, source, range.begin};
}

void GatherPipeline::publish() {
  const int rank = group_.rank();
  const auto own = static_cast<std::size_t>(rank);
  const std::size_t side_bytes = aligned(static_cast<std::size_t>(sides_[own]) * 4);
  if (sides_[own] > 0)
    std::memcpy(view_at(*workspace_, rank, kCardBytes, Shape{sides_[own]}, DType::kFloat32).data,
                call_.side.data, call_.side.bytes());
  TensorView place = call_.shard;
  if (!call_.symmetric)
    place = view_at(*workspace_, rank, kCardBytes + side_bytes, shapes_[own], call_.shard.dtype);
  for (int split = 0; split < call_.splits; ++split) {
    const planner::ShardRange range = planner::shard_range(shapes_[own][0], call_.splits, split);
    if (!call_.symmetric)
      context_.backend().copy(context_.kernel_context(), rows_of(place, range.begin, range.size()),
                              rows_of(call_.shard, range.begin, range.size()));
    for (int step = 1; step < group_.size(); ++step)
      group_.put_signal((rank + step) % group_.size(), split);
  }
}

void GatherPipeline::run(const std::function<void(const GatherPiece&)>& consume) {
  publish();
  for (int step = 0; step < group_.size(); ++step) {
    const int source = (group_.rank() + step) % group_.size();
    for (int split = 0; split < call_.splits; ++split) {
      if (step > 0) group_.wait_signal(source, split);
      consume(piece(source, split));
    }
  }
  // This rank's memory is written again by its next operation.
  group_.barrier(kFusedBarrier);
}

void gather_and_consume(ExecutionContext& context, SymmetricGroup& group, const TensorView& shard,
                        const std::function<void(const TensorView& shard, int source)>& consume) {
  GatherCall call;
  call.op = "gather_and_consume";
  call.shard = shard;
  GatherPipeline(context, group, std::move(call)).run([&](const GatherPiece& piece) {
    consume(piece.rows, piece.source);
  });
}

// --- Produce and exchange

ExchangePipeline::ExchangePipeline(SymmetricGroup& group, ExchangeCall call)
    : group_(group), call_(std::move(call)) {
  check(call_.whole.size() >= 1 && call_.dim >= 0 && call_.dim < call_.whole.size(),
        "{}: a result of shape {} has no dim {}", call_.op, call_.whole, call_.dim);
  check_splits(call_.op, group_, call_.splits);
  std::vector<AgreedValue> agreed = call_.agreed;
  agreed.push_back({"the dim that is scattered", call_.dim});
  exchange_cards(group_, make_card(call_.op, call_.whole, call_.dtype, -1, call_.splits, agreed),
                 agreed);
  // No part is larger than the first.
  slot_bytes_ = aligned(bytes_of(part(0), call_.dtype));
  workspace_ = group_.workspace(kCardBytes + slot_bytes_ * static_cast<std::size_t>(group_.size()));
}

Shape ExchangePipeline::part(int rank) const {
  Shape shape = call_.whole;
  shape[call_.dim] = planner::shard_range(call_.whole[call_.dim], group_.size(), rank).size();
  return shape;
}

TensorView ExchangePipeline::slot(int owner, int source, int split, std::int64_t& first_row) const {
  const Shape shape = part(owner);
  const std::int64_t rows = row_count(shape);
  const TensorView whole =
      view_at(*workspace_, owner, kCardBytes + slot_bytes_ * static_cast<std::size_t>(source),
              Shape{rows, shape.back()}, call_.dtype);
  const planner::ShardRange range = planner::shard_range(rows, call_.splits, split);
  first_row = range.begin;
  return rows_of(whole, range.begin, range.size());
}

void ExchangePipeline::run(const std::function<void(const ProducedRows&)>& produce,
                           const std::function<void(const ReceivedRows&)>& consume) {
  const int rank = group_.rank(), size = group_.size();
  for (int step = 1; step <= size; ++step) {
    const int destination = (rank + step) % size;
    for (int split = 0; split < call_.splits; ++split) {
      ProducedRows rows{{}, destination, 0};
      rows.rows = slot(destination, rank, split, rows.first_row);
      produce(rows);
      if (destination != rank) group_.put_signal(destination, split);
    }
  }
  for (int split = 0; split < call_.splits; ++split) {
    ReceivedRows received{{}, 0};
    for (int source = 0; source < size; ++source) {
      if (source != rank) group_.wait_signal(source, split);
      received.slots.push_back(slot(rank, source, split, received.first_row));
    }
    consume(received);
  }
  // Peers write here again only after a meeting in which this rank takes part, and all of them
  // have read its card: they signalled later.
}

void produce_and_exchange(
    SymmetricGroup& group, const Shape& whole, int dim, DType dtype,
    const std::function<void(int destination, const TensorView& slot)>& produce,
    const std::function<void(std::span<const TensorView> slots)>& consume) {
  ExchangeCall call;
  call.op = "produce_and_exchange";
  call.whole = whole;
  call.dim = dim;
  call.dtype = dtype;
  ExchangePipeline(group, std::move(call))
      .run([&](const ProducedRows& rows) { produce(rows.destination, rows.rows); },
           [&](const ReceivedRows& received) { consume(received.slots); });
}

}  // namespace meshloom::comm
