// SPDX-License-Identifier: Apache-2.0
#include "daemon/comm/symm_collectives/symmetric_context.h"

#include <algorithm>
#include <numeric>

#include "kernels/base/error.h"

namespace meshloom::comm {
namespace {

constexpr auto kProcessInterval = std::chrono::milliseconds(3);

std::vector<CollectivePad> pads_in(const GatheredSegments& memory) {
  std::vector<CollectivePad> pads;
  for (std::size_t r = 0; r < memory.segments.size(); ++r)
    pads.emplace_back(memory.segments[r]->data() + memory.offsets[r],
                      static_cast<int>(memory.segments.size()));
  return pads;
}

std::vector<int> names_of(const SymmetricSetup& setup, std::size_t ranks) {
  if (!setup.names.empty()) return setup.names;
  std::vector<int> names(ranks);
  std::iota(names.begin(), names.end(), 0);
  return names;
}

}  // namespace

SymmetricContext::SymmetricContext(GatheredSegments pads, int rank, const SymmetricSetup& setup)
    : memory_(setup.memory),
      pad_memory_(std::move(pads)),
      rank_(rank),
      threads_(setup.threads),
      access_(setup.access),
      names_(names_of(setup, pad_memory_.segments.size())),
      pads_(pads_in(pad_memory_)),
      segments_(memory_, rank, pads_, pad_memory_.ways, names_),
      by_socket_(std::find(pad_memory_.ways.begin(), pad_memory_.ways.end(), Sharing::kSocket) !=
                 pad_memory_.ways.end()),
      processes_(processes_of(pad_memory_, rank, memory_->options().watch)) {
  for (std::vector<PeerView>& views : peers_) views.resize(pads_.size());
}

bool SymmetricContext::admits(std::uint64_t number) {
  if (number >= finished_by_all_ + CollectivePad::kSlots) {
    std::uint64_t least = finished_;
    for (const CollectivePad& pad : pads_)
      least = std::min(
          least, FlagValue::number(pad.finished().load(std::memory_order_acquire), generation_));
    finished_by_all_ = least;
  }
  return number < finished_by_all_ + CollectivePad::kSlots;
}

void SymmetricContext::finish(std::uint64_t number) {
  finished_behind_ |= std::uint64_t{1} << (number - finished_);
  while ((finished_behind_ & 1) != 0) {
    finished_behind_ >>= 1;
    ++finished_;
  }
  own_pad().finished().store(value(finished_, 0), std::memory_order_release);
}

std::shared_ptr<Segment> SymmetricContext::take_staging(std::size_t stride) {
  const std::size_t bytes = kRing * stride;
  const auto found = std::find_if(staging_.begin(), staging_.end(),
                                  [&](const auto& one) { return one->bytes() >= bytes; });
  if (found == staging_.end()) return memory_->make_segment(bytes);
  std::shared_ptr<Segment> staging = std::move(*found);
  staging_.erase(found);
  return staging;
}

int SymmetricContext::find_gone(const std::vector<int>& ranks) {
  const Clock::time_point now = Clock::now();
  if (now - processes_seen_ < kProcessInterval) return -1;
  processes_seen_ = now;
  for (const int rank : ranks)
    if (is_gone(rank)) return rank;
  return -1;
}

std::int64_t SymmetricContext::pid(int rank) const {
  return processes_[static_cast<std::size_t>(rank)]->pid();
}

std::string SymmetricContext::about(int rank) const {
  const auto& process = processes_[static_cast<std::size_t>(rank)];
  if (!process) return "a thread of this process";
  return fmt::format("its process {} is {}", process->pid(), to_string(process->state()));
}

void SymmetricContext::renew() {
  ++generation_;
  check_internal(generation_ < FlagValue::kMostGenerations, "a group recovered {} times",
                 generation_);
  finished_ = finished_behind_ = finished_by_all_ = 0;
}

void SymmetricContext::abandon_memory() {
  // On purpose without an owner.
  new std::vector<std::shared_ptr<Segment>>(std::move(staging_));
  staging_.clear();
}

}  // namespace meshloom::comm
