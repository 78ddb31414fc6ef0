// SPDX-License-Identifier: Apache-2.0
#include "daemon/comm/symm_mem/symmetric_group.h"

#include <algorithm>

#include "daemon/comm/symm_mem/symmetric_errors.h"
#include "daemon/comm/symm_mem/symmetric_memory.h"
#include "kernels/base/error.h"

namespace meshloom::comm {

SymmetricGroup::SymmetricGroup(ProcessGroup& group, SymmetricMemory& memory)
    : group_(group), memory_(memory), channels_(memory.options().channels) {
  make_pads();
  puts_.assign(slot(channels_, 0), 0);
  takes_ = puts_;
  barriers_.assign(static_cast<std::size_t>(channels_), 0);
  if (FailureDomain* failures = group_.failures()) generation_ = failures->epoch();
}

void SymmetricGroup::make_pads() {
  SegmentPiece mine;
  try {
    mine.segment = Segment::create(SignalPad::bytes(channels_, size()));
    mine.bytes = SignalPad::bytes(channels_, size());
  } catch (const Error& error) {
    mine.trouble = error.what();
  }
  pad_memory_ = memory_.directory().gather(group_, mine);
  why_not_ = pad_memory_.why_not;
  if (!enabled()) return;
  for (const std::uint64_t bytes : pad_memory_.bytes)
    check(bytes == mine.bytes, "symmetric memory of group '{}': the ranks differ in channels",
          group_.name());
  for (const auto& segment : pad_memory_.segments) pads_.emplace_back(segment->data(), size());
  watch_.emplace(group_, memory_.options().abort, memory_.directory(),
                 processes_of(pad_memory_, rank(), memory_.options().watch));
}

Sharing SymmetricGroup::sharing(int rank) const {
  check_rank(rank, size(), "sharing");
  return pad_memory_.ways[static_cast<std::size_t>(rank)];
}

std::string SymmetricGroup::why_no_multicast() const {
  return enabled() ? SymmetricBuffer::why_no_multicast() : why_not_;
}

std::string SymmetricGroup::summary() const {
  const std::string head =
      fmt::format("symmetric memory of group '{}' on rank {} of {}", group_.name(), rank(), size());
  if (!enabled()) return fmt::format("{}: off: {}", head, why_not_);
  std::vector<std::string> peers;
  for (int r = 0; r < size(); ++r) {
    if (r == rank()) continue;
    const PeerProcess* process = watch_->process(r);
    peers.push_back(fmt::format("rank {} by {}, watched by {}", r, to_string(sharing(r)),
                                process == nullptr ? "its process" : process->watched_by()));
  }
  return fmt::format("{}: {}", head,
                     peers.empty() ? "alone" : fmt::to_string(fmt::join(peers, "; ")));
}

void SymmetricGroup::put_signal(int destination, int channel, Timeout timeout) {
  check_signal("put_signal", destination, channel);
  const SignalPad& there = pad(destination);
  std::uint64_t& count = puts_[slot(channel, destination)];
  if (count > 0) {
    const std::uint64_t before = SignalPad::value(generation_, count);
    const SignalPad::Flag& taken = there.taken(channel, rank());
    watch_->wait(
        call("put_signal", channel, timeout),
        [&] { return taken.load(std::memory_order_acquire) >= before; },
        [&] { return std::vector<int>{destination}; });
  }
  ++count;
  there.put(channel, rank()).store(SignalPad::value(generation_, count), std::memory_order_release);
}

void SymmetricGroup::wait_signal(int source, int channel, Timeout timeout) {
  check_signal("wait_signal", source, channel);
  std::uint64_t& count = takes_[slot(channel, source)];
  const std::uint64_t next = SignalPad::value(generation_, count + 1);
  const SignalPad::Flag& put = pad(rank()).put(channel, source);
  watch_->wait(
      call("wait_signal", channel, timeout),
      [&] { return put.load(std::memory_order_acquire) >= next; },
      [&] { return std::vector<int>{source}; });
  ++count;
  pad(rank()).taken(channel, source).store(next, std::memory_order_release);
}

void SymmetricGroup::barrier(int channel, Timeout timeout) {
  check_signal("barrier", rank(), channel);
  std::uint64_t& count = barriers_[static_cast<std::size_t>(channel)];
  const std::uint64_t next = SignalPad::value(generation_, count + 1);
  for (int r = 0; r < size(); ++r)
    pad(r).met(channel, rank()).store(next, std::memory_order_release);
  const auto is_here = [&](int r) {
    return pad(rank()).met(channel, r).load(std::memory_order_acquire) >= next;
  };
  int first_missing = 0;
  watch_->wait(
      call("barrier", channel, timeout),
      [&] {
        while (first_missing < size() && is_here(first_missing)) ++first_missing;
        return first_missing == size();
      },
      [&] {
        std::vector<int> missing;
        for (int r = first_missing; r < size(); ++r)
          if (!is_here(r)) missing.push_back(r);
        return missing;
      });
  ++count;
}

std::shared_ptr<SymmetricBuffer> SymmetricGroup::rendezvous(const TensorView& mine) {
  check_enabled("rendezvous");
  SegmentPiece piece;
  piece.bytes = mine.bytes();
  // Strides that are not row-major would show peers other elements than the owner means.
  if (mine.contiguous()) piece.segment = memory_.find(mine.data, mine.bytes());
  if (piece.segment)
    piece.offset = static_cast<std::uint64_t>(mine.as<std::byte>() - piece.segment->data());
  GatheredSegments all = memory_.directory().gather(group_, piece);
  if (!all.why_not.empty())
    throw FailedPrecondition(
        fmt::format("rendezvous of group '{}': {}", group_.name(), all.why_not),
        "SYMM_MEM_UNAVAILABLE");
  if (std::find(all.segments.begin(), all.segments.end(), nullptr) != all.segments.end())
    return nullptr;
  return std::make_shared<SymmetricBuffer>(std::move(all), rank());
}

std::shared_ptr<SymmetricBuffer> SymmetricGroup::workspace(std::size_t bytes) {
  check_enabled("workspace");
  follow_generation();
  if (workspace_ && workspace_->bytes(rank()) >= bytes) return workspace_;
  SegmentPiece piece;
  try {
    piece.segment = Segment::create(bytes);
    piece.bytes = piece.segment->bytes();
  } catch (const Error& error) {
    piece.trouble = error.what();
  }
  GatheredSegments all = memory_.directory().gather(group_, piece);
  if (!all.why_not.empty())
    throw ResourceExhausted(
        fmt::format("workspace of {} bytes of group '{}': {}", bytes, group_.name(), all.why_not),
        "SYMM_MEM_NO_ROOM");
  workspace_ = std::make_shared<SymmetricBuffer>(std::move(all), rank());
  return workspace_;
}

std::shared_ptr<Segment> SymmetricGroup::attach(int rank, const SegmentName& name,
                                                Timeout timeout) {
  check_enabled("attach");
  check_rank(rank, size(), "attach");
  Sharing way = Sharing::kNone;
  std::string why;
  std::shared_ptr<Segment> segment = memory_.directory().open(name, way, why);
  if (!segment && sharing(rank) == Sharing::kSocket)
    watch_->wait(
        call("attach", -1, timeout),
        [&] { return (segment = memory_.directory().open(name, way, why)) != nullptr; },
        [&] { return std::vector<int>{rank}; });
  if (!segment)
    throw CommError(
        fmt::format("attach in group '{}' on rank {}: no way to a segment of rank {}: {}",
                    group_.name(), this->rank(), rank, why),
        "SYMM_MEM_UNAVAILABLE", {{"missing", std::to_string(rank)}});
  return segment;
}

void SymmetricGroup::check_signal(const char* name, int peer, int channel) {
  check_enabled(name);
  check_rank(peer, size(), name);
  check_channel(channel, channels_, name);
  follow_generation();
}

void SymmetricGroup::check_enabled(const char* name) const {
  if (enabled()) return;
  throw FailedPrecondition(
      fmt::format("{} in group '{}': no symmetric memory: {}", name, group_.name(), why_not_),
      "SYMM_MEM_UNAVAILABLE");
}

void SymmetricGroup::follow_generation() {
  FailureDomain* failures = group_.failures();
  if (failures == nullptr || failures->epoch() == generation_) return;
  generation_ = failures->epoch();
  std::fill(puts_.begin(), puts_.end(), 0);
  std::fill(takes_.begin(), takes_.end(), 0);
  std::fill(barriers_.begin(), barriers_.end(), 0);
  // The failure may have come while it grew, on some ranks before and on some after.
  workspace_.reset();
}

SignalWatch::Call SymmetricGroup::call(const char* name, int channel, Timeout timeout) const {
  return {name, channel, timeout.value_or(memory_.options().timeout)};
}

}  // namespace meshloom::comm
