// SPDX-License-Identifier: Apache-2.0
#include "daemon/comm/collectives/reduce_collective.h"

#include <algorithm>

#include "daemon/comm/collectives/ordered_reduce.h"
#include "planner/communication_sizes.h"

namespace meshloom::comm {
namespace {

constexpr std::size_t kSliceBytes = planner::kReduceSliceBytes;
constexpr std::size_t kDepth = planner::kReduceSlicesInFlight;

/// Pointers to all contributions in rank order: `own` at `rank`, the others' `bytes` apart in
/// `staging`.
std::vector<const void*> in_rank_order(int size, int rank, const std::byte* own, std::byte* staging,
                                       std::size_t bytes) {
  std::vector<const void*> inputs;
  inputs.reserve(static_cast<std::size_t>(size));
  for (int r = 0; r < size; ++r) {
    inputs.push_back(r == rank ? own : staging);
    if (r != rank) staging += bytes;
  }
  return inputs;
}

}  // namespace

ReduceCollective::ReduceCollective(CollectiveContext context, Job job)
    : context_(context),
      job_(std::move(job)),
      slice_elements_(static_cast<std::int64_t>(kSliceBytes / dtype_size(job_.dtype))) {
  for (const Part& part : job_.parts) longest_ = std::max(longest_, part.size);
}

ReduceCollective::~ReduceCollective() {
  // Receives are cancelled in reverse order.
  while (!slices_.empty()) slices_.pop_back();
}

std::int64_t ReduceCollective::slice_size(int r, std::int64_t begin) const {
  const std::int64_t left = job_.parts[static_cast<std::size_t>(r)].size - begin;
  return std::clamp<std::int64_t>(left, 0, slice_elements_);
}

void ReduceCollective::start_slice() {
  const std::size_t item = dtype_size(job_.dtype);
  const int size = context_.transport.size();
  const int rank = context_.transport.rank();
  const std::size_t own_bytes = static_cast<std::size_t>(slice_size(rank, next_)) * item;
  Slice slice{Transfers(context_.transport, context_.bytes_sent),
              context_.scratch.take(own_bytes * static_cast<std::size_t>(size - 1)), next_, false};
  const Signature* signature = next_ == 0 ? &context_.signature : nullptr;
  std::byte* staging = slice.staging.data();
  for (int r = 0; r < size; ++r) {
    if (r == rank) continue;
    slice.transfers.recv(staging, own_bytes, r, context_.tag, signature);
    staging += own_bytes;
  }
  // Each rank begins with its successor, so that not all send to rank 0 first.
  for (int step = 1; step < size; ++step) {
    const int r = (rank + step) % size;
    const Part& part = job_.parts[static_cast<std::size_t>(r)];
    slice.transfers.send(part.data + static_cast<std::size_t>(next_) * item,
                         static_cast<std::size_t>(slice_size(r, next_)) * item, r, context_.tag,
                         signature);
  }
  slices_.push_back(std::move(slice));
  next_ += slice_elements_;
}

void ReduceCollective::sum_slice(Slice& slice) {
  const std::size_t item = dtype_size(job_.dtype);
  const int rank = context_.transport.rank();
  const std::int64_t n = slice_size(rank, slice.begin);
  if (n == 0) return;
  const std::size_t offset = static_cast<std::size_t>(slice.begin) * item;
  const auto inputs = in_rank_order(context_.transport.size(), rank,
                                    job_.parts[static_cast<std::size_t>(rank)].data + offset,
                                    slice.staging.data(), static_cast<std::size_t>(n) * item);
  std::byte* const sum =
      job_.sum + static_cast<std::size_t>(slice.begin) * dtype_size(job_.sum_dtype);
  const auto reduce = job_.sum_dtype == job_.dtype ? reduce_in_order : reduce_partially;
  reduce(context_.threads, job_.dtype, job_.op, sum, inputs, n);
}

void ReduceCollective::gather_slice(Slice& slice) {
  const std::size_t item = dtype_size(job_.dtype);
  const int size = context_.transport.size();
  const int rank = context_.transport.rank();
  const std::size_t offset = static_cast<std::size_t>(slice.begin) * item;
  const std::size_t own_bytes = static_cast<std::size_t>(slice_size(rank, slice.begin)) * item;
  for (int step = 1; step < size; ++step) {
    const int r = (rank + step) % size;
    slice.transfers.recv(job_.parts[static_cast<std::size_t>(r)].data + offset,
                         static_cast<std::size_t>(slice_size(r, slice.begin)) * item, r,
                         context_.tag + 1);
    slice.transfers.send(job_.sum + offset, own_bytes, r, context_.tag + 1);
  }
  slice.gathering = true;
}

bool ReduceCollective::advance() {
  // The first slice carries the signature, even if there is nothing to reduce.
  while ((next_ == 0 || next_ < longest_) && slices_.size() < kDepth) start_slice();
  // Messages with one tag are told apart by their order alone, so slices change phase in order.
  for (Slice& slice : slices_) {
    if (!slice.transfers.done()) {
      if (!slice.gathering) break;
      continue;
    }
    if (slice.gathering) continue;
    sum_slice(slice);
    if (job_.gather) {
      gather_slice(slice);
    } else {
      slice.gathering = true;
    }
  }
  while (!slices_.empty() && slices_.front().gathering && slices_.front().transfers.done()) {
    completed_ += slices_.front().transfers.completed();
    slices_.pop_front();
    if (next_ < longest_) start_slice();
  }
  return slices_.empty() && next_ >= longest_;
}

std::uint64_t ReduceCollective::progress() const {
  std::uint64_t sum = completed_;
  for (const Slice& slice : slices_) sum += slice.transfers.completed();
  return sum;
}

std::vector<int> ReduceCollective::missing() const {
  for (const Slice& slice : slices_) {
    std::vector<int> peers = slice.transfers.missing();
    if (!peers.empty()) return peers;
  }
  return {};
}

OneShotAllReduce::OneShotAllReduce(CollectiveContext context, std::byte* data, std::int64_t n,
                                   DType dtype, ReduceOp op)
    : context_(context),
      data_(data),
      n_(n),
      dtype_(dtype),
      op_(op),
      staging_(context.scratch.take(static_cast<std::size_t>(n) * dtype_size(dtype) *
                                    static_cast<std::size_t>(context.transport.size() - 1))),
      transfers_(context.transport, context.bytes_sent) {
  const std::size_t bytes = static_cast<std::size_t>(n) * dtype_size(dtype);
  const int size = context.transport.size();
  std::byte* staging = staging_.data();
  for (int r = 0; r < size; ++r) {
    if (r == context.transport.rank()) continue;
    transfers_.recv(staging, bytes, r, context.tag, &context.signature);
    staging += bytes;
  }
  for (int step = 1; step < size; ++step)
    transfers_.send(data_, bytes, (context.transport.rank() + step) % size, context.tag,
                    &context.signature);
}

bool OneShotAllReduce::advance() {
  if (!transfers_.done()) return false;
  const auto inputs =
      in_rank_order(context_.transport.size(), context_.transport.rank(), data_, staging_.data(),
                    static_cast<std::size_t>(n_) * dtype_size(dtype_));
  reduce_in_order(context_.threads, dtype_, op_, data_, inputs, n_);
  return true;
}

}  // namespace meshloom::comm
