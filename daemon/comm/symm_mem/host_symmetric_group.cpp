// SPDX-License-Identifier: Apache-2.0
#include "daemon/comm/symm_mem/host_symmetric_group.h"

#include <algorithm>

#include "daemon/comm/symm_mem/host_symmetric_buffer.h"
#include "daemon/comm/symm_mem/symmetric_errors.h"
#include "kernels/base/error.h"

namespace meshloom::comm {

HostSymmetricGroup::HostSymmetricGroup(ProcessGroup& group, HostSymmetricMemory& memory)
    : SymmetricGroup(group, memory.options().channels), memory_(memory) {
  make_pads();
  puts_.assign(slot(channels(), 0), 0);
  takes_ = puts_;
  barriers_.assign(static_cast<std::size_t>(channels()), 0);
  if (FailureDomain* failures = group.failures()) generation_ = failures->epoch();
}

void HostSymmetricGroup::make_pads() {
  SegmentPiece mine;
  try {
    mine.segment = Segment::create(SignalPad::bytes(channels(), size()));
    mine.bytes = SignalPad::bytes(channels(), size());
  } catch (const Error& error) {
    mine.trouble = error.what();
  }
  pad_memory_ = memory_.directory().gather(group(), mine);
  refuse(pad_memory_.why_not);
  if (!enabled()) return;
  for (const std::uint64_t bytes : pad_memory_.bytes)
    check(bytes == mine.bytes, "symmetric memory of group '{}': the ranks differ in channels",
          group().name());
  for (const auto& segment : pad_memory_.segments) pads_.emplace_back(segment->data(), size());
  watch_.emplace(group(), memory_.options().abort, memory_.directory(),
                 processes_of(pad_memory_, rank(), memory_.options().watch));
}

Sharing HostSymmetricGroup::sharing(int rank) const {
  check_rank(rank, size(), "sharing");
  return pad_memory_.ways[static_cast<std::size_t>(rank)];
}

std::string HostSymmetricGroup::why_no_multicast() const {
  return enabled() ? HostSymmetricBuffer::why_no_multicast() : why_not();
}

std::string HostSymmetricGroup::summary() const {
  const std::string head = fmt::format("symmetric memory of group '{}' on rank {} of {}",
                                       group().name(), rank(), size());
  if (!enabled()) return fmt::format("{}: off: {}", head, why_not());
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

void HostSymmetricGroup::put_signal(int destination, int channel, Timeout timeout) {
  begin_signal("put_signal", destination, channel);
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

void HostSymmetricGroup::wait_signal(int source, int channel, Timeout timeout) {
  begin_signal("wait_signal", source, channel);
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

void HostSymmetricGroup::barrier(int channel, Timeout timeout) {
  begin_signal("barrier", rank(), channel);
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

std::shared_ptr<SymmetricBuffer> HostSymmetricGroup::rendezvous(const TensorView& mine) {
  check_enabled("rendezvous");
  SegmentPiece piece;
  piece.bytes = mine.bytes();
  // Strides that are not row-major would show peers other elements than the owner means.
  if (mine.contiguous()) piece.segment = memory_.find(mine.data, mine.bytes());
  if (piece.segment)
    piece.offset = static_cast<std::uint64_t>(mine.as<std::byte>() - piece.segment->data());
  GatheredSegments all = memory_.directory().gather(group(), piece);
  if (!all.why_not.empty())
    throw FailedPrecondition(
        fmt::format("rendezvous of group '{}': {}", group().name(), all.why_not),
        "SYMM_MEM_UNAVAILABLE");
  if (std::find(all.segments.begin(), all.segments.end(), nullptr) != all.segments.end())
    return nullptr;
  return std::make_shared<HostSymmetricBuffer>(std::move(all), rank());
}

std::shared_ptr<SymmetricBuffer> HostSymmetricGroup::workspace(std::size_t bytes) {
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
  GatheredSegments all = memory_.directory().gather(group(), piece);
  if (!all.why_not.empty())
    throw ResourceExhausted(
        fmt::format("workspace of {} bytes of group '{}': {}", bytes, group().name(), all.why_not),
        "SYMM_MEM_NO_ROOM");
  workspace_ = std::make_shared<HostSymmetricBuffer>(std::move(all), rank());
  return workspace_;
}

std::shared_ptr<Segment> HostSymmetricGroup::attach(int rank, const SegmentName& name,
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
                    group().name(), this->rank(), rank, why),
        "SYMM_MEM_UNAVAILABLE", {{"missing", std::to_string(rank)}});
  return segment;
}

void HostSymmetricGroup::begin_signal(const char* name, int peer, int channel) {
  check_signal(name, peer, channel);
  follow_generation();
}

void HostSymmetricGroup::follow_generation() {
  FailureDomain* failures = group().failures();
  if (failures == nullptr || failures->epoch() == generation_) return;
  generation_ = failures->epoch();
  std::fill(puts_.begin(), puts_.end(), 0);
  std::fill(takes_.begin(), takes_.end(), 0);
  std::fill(barriers_.begin(), barriers_.end(), 0);
  // The failure may have come while it grew, on some ranks before and on some after.
  workspace_.reset();
}

SignalWatch::Call HostSymmetricGroup::call(const char* name, int channel, Timeout timeout) const {
  return {name, channel, timeout.value_or(memory_.options().timeout)};
}

}  // namespace meshloom::comm
