// SPDX-License-Identifier: Apache-2.0
#include "daemon/comm/symm_collectives/symmetric_reduce.h"

#include <cstring>

#include "daemon/comm/collectives/ordered_reduce.h"
#include "planner/shard.h"

namespace meshloom::comm {
namespace {

// A block of a sum is copied to all ranks while it is in the first-level cache.
constexpr std::size_t kBlockBytes = 16 << 10;
constexpr std::int64_t kGrainBlocks = 4;

}  // namespace

SymmetricOneShot::SymmetricOneShot(SymmetricContext& context, const Call& call)
    : SymmetricCollective(context, call, 1),
      data_{call.outputs[0].as<std::byte>(), call.outputs[0].bytes()},
      dtype_(call.signature.dtype),
      op_(call.signature.op) {
  *call.bytes_sent += data_.bytes * static_cast<std::size_t>(context.size() - 1);
}

void SymmetricOneShot::take(std::uint64_t first, std::uint64_t count) {
  std::byte* const data = data_.data + first * slice_bytes();
  const std::size_t bytes = bytes_in(data_.bytes, first, count);
  std::vector<const void*> inputs;
  for (int r = 0; r < context().size(); ++r)
    inputs.push_back(r == context().rank() ? data : at(r, first));
  reduce_in_order(context().threads(), dtype_, op_, data, inputs,
                  static_cast<std::int64_t>(bytes / dtype_size(dtype_)));
}

SymmetricReduce::SymmetricReduce(SymmetricContext& context, const Call& call)
    : SymmetricCollective(context, call, context.size()),
      sum_(call.outputs[0].as<std::byte>()),
      dtype_(call.signature.dtype),
      sum_dtype_(call.outputs[0].dtype),
      op_(call.signature.op),
      gather_(call.signature.kind == CollectiveKind::kAllReduce) {
  const std::size_t item = dtype_size(dtype_);
  for (int r = 0; r < context.size(); ++r) {
    if (gather_) {
      const planner::ShardRange range =
          planner::shard_range(call.outputs[0].numel(), context.size(), r);
      parts_.push_back({sum_ + static_cast<std::size_t>(range.begin) * item,
                        static_cast<std::size_t>(range.size()) * item});
    } else {
      const TensorView& input = call.inputs[static_cast<std::size_t>(r)];
      parts_.push_back({input.as<std::byte>(), input.bytes()});
    }
    if (r != context.rank()) *call.bytes_sent += parts_.back().bytes;
  }
  if (gather_) {
    sum_ = own().data;
    *call.bytes_sent += own().bytes * static_cast<std::size_t>(context.size() - 1);
  }
}

void SymmetricReduce::take(std::uint64_t first, std::uint64_t count) {
  const auto size = static_cast<std::size_t>(context().size());
  const std::size_t bytes = bytes_in(own().bytes, first, count), item = dtype_size(dtype_);
  const std::size_t offset = static_cast<std::size_t>(first) * slice_bytes();
  std::vector<std::byte*> memory;
  for (int r = 0; r < context().size(); ++r)
    memory.push_back(r == context().rank() ? own().data + offset : at(r, first));
  const std::size_t sum_item = dtype_size(sum_dtype_);
  std::byte* const sum = sum_ + offset / item * sum_item;
  const auto reduce = sum_dtype_ == dtype_ ? reduce_in_order : reduce_partially;
  parallel_for(context().threads(), static_cast<std::int64_t>(divide_up(bytes, kBlockBytes)),
               kGrainBlocks, [&](std::int64_t begin, std::int64_t end) {
                 std::vector<const void*> inputs(size);
                 const std::size_t stop =
                     std::min(bytes, static_cast<std::size_t>(end) * kBlockBytes);
                 for (std::size_t at = static_cast<std::size_t>(begin) * kBlockBytes; at < stop;
                      at += kBlockBytes) {
                   const std::size_t block = std::min(kBlockBytes, stop - at);
                   for (std::size_t r = 0; r < size; ++r) inputs[r] = memory[r] + at;
                   reduce(Threads{1}, dtype_, op_, sum + at / item * sum_item, inputs,
                          static_cast<std::int64_t>(block / item));
                   if (!gather_) continue;
                   for (std::size_t r = 0; r < size; ++r)
                     if (memory[r] + at != sum + at) std::memcpy(memory[r] + at, sum + at, block);
                 }
               });
}

void SymmetricReduce::take_answers(std::uint64_t slice) {
  if (!gather_) return;
  for (int peer = 0; peer < context().size(); ++peer) {
    if (peer == context().rank()) continue;
    const Piece& part = parts_[static_cast<std::size_t>(peer)];
    const std::size_t bytes = bytes_in(part.bytes, slice);
    if (bytes > 0) std::memcpy(part.data + slice * slice_bytes(), staged(peer, slice), bytes);
    count_staged(bytes);
  }
}

}  // namespace meshloom::comm
