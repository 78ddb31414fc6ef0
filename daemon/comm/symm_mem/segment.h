// SPDX-License-Identifier: Apache-2.0
// Segment: memory that other processes of the host can map, without a name in any file system.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>

#include "daemon/base/unique_fd.h"

namespace meshloom::comm {

/// Nonce is 128 random bits that lie in a segment. Who reads them there sees the owner's memory:
/// with PID namespaces the same pid and descriptor number exist on several "hosts" and are several
/// memories.
using Nonce = std::array<std::uint64_t, 2>;

/// A peer finds a segment by this name; it is plain data, the same bytes for every peer, and valid
/// as long as the owner holds the segment.
struct SegmentName {
  Nonce nonce{};
  std::uint64_t bytes = 0;
  std::int64_t pid = 0;
  std::int64_t fd = -1;
  std::uint64_t start_time = 0;     ///< of the process, see peer_process.h
  std::uint64_t pid_namespace = 0;  ///< likewise
  std::uint64_t object = 0;         ///< address of the owner's Segment, for ranks of its process
};

/// Segment is a memfd and its mapping. It never grows and never moves; its size is sealed, so that
/// no peer can cut it off under the others. When the last process that maps it ends, however, it is
/// gone. Thread-safe: nothing changes after construction.
class Segment : public std::enable_shared_from_this<Segment> {
 public:
  /// Makes new memory of at least `bytes` (rounded up to a page), zero, aligned to 2 MiB where at
  /// least that large, and then in huge pages if the kernel makes them (MADV_COLLAPSE). Every page
  /// is touched by the caller, so that it lies on its NUMA node. Throws ResourceExhausted naming
  /// the sizes where the memory is not there (see memory_room.h), IoError where the kernel refuses
  /// memfd.
  static std::shared_ptr<Segment> create(std::size_t bytes);

  /// Maps a peer's segment through an open descriptor, which it takes. Throws IoError if it is
  /// another memory than `name` says, or cannot be mapped.
  static std::shared_ptr<Segment> map(base::UniqueFd fd, const SegmentName& name);

  ~Segment();
  Segment(const Segment&) = delete;
  Segment& operator=(const Segment&) = delete;

  std::byte* data() const { return data_; }
  std::size_t bytes() const { return name_.bytes; }
  const SegmentName& name() const { return name_; }
  /// Tells whether `pointer` is inside, or at the end.
  bool contains(const void* pointer) const {
    const auto* at = static_cast<const std::byte*>(pointer);
    return at >= data_ && at <= data_ + bytes();
  }
  /// Returns the owner's descriptor; -1 in a peer.
  int fd() const { return fd_.get(); }

 private:
  Segment() = default;
  void map_memory(int fd);

  base::UniqueFd fd_;
  std::byte* data_ = nullptr;
  SegmentName name_;
};

/// Returns how many segments this process has made since it began, for tensors, workspaces and
/// signals of all its ranks. Making one also touches it, so where this stands still no collective
/// took memory or met a page for the first time, which steps of training must not. Any thread may
/// ask.
std::uint64_t segments_made();

}  // namespace meshloom::comm
