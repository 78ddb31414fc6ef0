// SPDX-License-Identifier: Apache-2.0
// WorkHistory: what ran on a device, in which epochs, and what comes before what.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "tests/support/cuda_emulator/device_memory.h"
#include "tests/support/cuda_emulator/shadow.h"

namespace meshloom::emulator {

/// How much of each stream of the process is done, by the stream's number.
using Clock = std::vector<std::uint32_t>;

/// Takes the later of both, stream by stream.
void join(Clock& clock, const Clock& other);

/// A kernel, or else what a call of the host is named. Names are never freed.
struct WorkName {
  const char* call = nullptr;
  const void* kernel = nullptr;

  std::string text() const;
};

/// Used under the emulator's lock.
class WorkHistory {
 public:
  /// Work number `clock[stream]` of a stream begins, given at `position`, after all that its clock
  /// has. Its first epoch begins too.
  void begin(WorkName name, std::uint32_t stream, const Clock& clock, Position position);
  /// Whether what ran in an epoch before is ordered before the work that runs now, or is part of
  /// it.
  bool is_before_current(Epoch epoch);
  /// Where in the host's order it was given.
  Position position_of(Epoch epoch) { return work_of(epoch).position; }
  std::string name_of(Epoch epoch) { return work_of(epoch).name.text(); }
  const WorkName& current() const { return work_.back().name; }

 private:
  struct Work {
    Epoch first;
    std::uint32_t stream;
    std::uint32_t number;
    Position position;
    WorkName name;
  };

  /// Where an epoch's work was found. It stays right, since work is added behind it alone.
  struct Found {
    Epoch epoch = 0;
    std::uint32_t index = 0;
  };

  const Work& work_of(Epoch epoch) {
    const Found& found = found_[epoch % kKnown];
    return found.epoch == epoch ? work_[found.index] : find(epoch);
  }
  const Work& find(Epoch epoch);

  // Bytes that a kernel reads were written in few epochs.
  static constexpr std::size_t kKnown = 4096;

  std::vector<Work> work_;  ///< by epoch
  std::vector<Found> found_ = std::vector<Found>(kKnown);
  Clock clock_;  ///< of the work that runs
};

/// The epoch that lasts, of all devices: they run one at a time.
Epoch current_epoch();
Epoch begin_epoch();

}  // namespace meshloom::emulator
