// SPDX-License-Identifier: Apache-2.0
#include "daemon/comm/symm_collectives/shared_segments.h"

#include <algorithm>

#include "kernels/base/error.h"

namespace meshloom::comm {

SharedSegments::SharedSegments(std::shared_ptr<HostSymmetricMemory> memory, int rank,
                               std::vector<CollectivePad> pads, std::vector<Sharing> ways,
                               std::vector<int> names)
    : memory_(std::move(memory)),
      rank_(rank),
      pads_(std::move(pads)),
      ways_(std::move(ways)),
      names_(std::move(names)),
      opened_(pads_.size()) {}

std::optional<Share> SharedSegments::share(const void* data, std::size_t bytes) {
  if (bytes == 0) return Share{};
  const auto* begin = static_cast<const std::byte*>(data);
  Told* told = find(begin, bytes);
  if (told == nullptr) {
    const std::shared_ptr<Segment> segment = memory_->find(data, bytes);
    if (segment) told = tell(segment);
  }
  if (told == nullptr) return std::nullopt;
  return Share{static_cast<std::uint64_t>(begin - told->begin), bytes,
               static_cast<std::uint32_t>(told - told_.data()), told->version};
}

SharedSegments::Told* SharedSegments::find(const std::byte* data, std::size_t bytes) {
  for (Told& told : told_)
    if (data >= told.begin && data + bytes <= told.begin + told.bytes && !told.segment.expired())
      return &told;
  return nullptr;
}

SharedSegments::Told* SharedSegments::tell(const std::shared_ptr<Segment>& segment) {
  // No collective is in flight on a segment that is gone, so no peer needs its entry.
  auto entry = std::find_if(told_.begin(), told_.end(),
                            [](const Told& told) { return told.segment.expired(); });
  if (entry == told_.end()) {
    if (told_.size() == CollectivePad::kTableEntries) return nullptr;
    entry = told_.insert(entry, Told{});
  }
  *entry = {segment, segment->data(), segment->bytes(), entry->version + 1};
  pads_[static_cast<std::size_t>(rank_)].table()[entry - told_.begin()] = segment->name();
  return &*entry;
}

std::byte* SharedSegments::resolve(int peer, const Share& share, std::size_t bytes) {
  const auto p = static_cast<std::size_t>(peer);
  check_internal(share.segment < CollectivePad::kTableEntries, "share of segment {} of rank {}",
                 share.segment, peer);
  if (opened_[p].size() <= share.segment) opened_[p].resize(share.segment + 1);
  Opened& opened = opened_[p][share.segment];
  if (opened.version != share.version) {
    Sharing way = Sharing::kNone;
    std::string why;
    const SegmentName& name = pads_[p].table()[share.segment];
    opened = {memory_->directory().open(name, way, why), 0};
    if (!opened.segment && ways_[p] == Sharing::kSocket) return nullptr;
    if (!opened.segment)
      throw CommError(fmt::format("rank {} has no way to memory of rank {}: {}",
                                  names_[static_cast<std::size_t>(rank_)], names_[p], why),
                      "SYMM_MEM_UNAVAILABLE", {{"missing", std::to_string(names_[p])}});
    opened.version = share.version;
  }
  const std::size_t room = opened.segment->bytes();
  check_internal(share.offset <= room && bytes <= room - share.offset,
                 "{} bytes at offset {} of {} bytes of rank {}", bytes, share.offset, room, peer);
  return opened.segment->data() + share.offset;
}

}  // namespace meshloom::comm
