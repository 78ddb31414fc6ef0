// SPDX-License-Identifier: Apache-2.0
// HostSymmetricMemory: symmetric memory of the CPU, in segments that the ranks of a host map.
#pragma once

#include <chrono>
#include <memory>
#include <vector>

#include "daemon/comm/symm_mem/segment_directory.h"
#include "daemon/comm/symm_mem/symmetric_memory.h"

namespace meshloom::comm {

struct SymmetricOptions {
  SharingMode sharing = SharingMode::kAuto;
  PeerProcess::Watch watch = PeerProcess::Watch::kAuto;
  int channels = 32;                           ///< of each group; the same on all ranks
  std::chrono::milliseconds timeout{100'000};  ///< of waits that name none
  const AbortFlag* abort = nullptr;            ///< ends all waits; outlives the memory
};

class HostSymmetricMemory final : public SymmetricMemory {
 public:
  explicit HostSymmetricMemory(const SymmetricOptions& options = {});
  ~HostSymmetricMemory() override { disable_all(); }

  const SymmetricOptions& options() const { return options_; }
  SegmentDirectory& directory() { return directory_; }

  Device device() const override { return kCpuDevice; }
  std::shared_ptr<std::byte> allocate(std::size_t bytes) override;
  bool holds(const void* data, std::size_t bytes) override { return find(data, bytes) != nullptr; }

  /// Makes the segment of an allocate(), and throws as that does. Peers hear of it by its name too
  /// (HostSymmetricGroup::attach).
  std::shared_ptr<Segment> make_segment(std::size_t bytes);
  /// Returns the segment of this rank that holds `bytes` at `data`; null if there is none.
  std::shared_ptr<Segment> find(const void* data, std::size_t bytes);

 private:
  std::unique_ptr<SymmetricGroup> make_group(ProcessGroup& group) override;

  SymmetricOptions options_;
  SegmentDirectory directory_;
  std::vector<std::weak_ptr<Segment>> segments_;
};

}  // namespace meshloom::comm
