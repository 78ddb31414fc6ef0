// SPDX-License-Identifier: Apache-2.0
// AbortRecord: the one cause that all ranks show when a collective met its deadline or a death.
#pragma once

#include <array>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>

#include "kernels/base/error.h"

namespace meshloom::comm {

/// It is written by the first rank of the host that detects it.
struct AbortRecord {
  int rank = -1;  ///< of the world: who wrote it
  ErrorKind kind = ErrorKind::kDeadlineExceeded;
  std::string reason;  ///< COLLECTIVE_TIMEOUT, SYMM_MEM_PEER_GONE, ...
  std::string collective;
  std::uint64_t sequence = 0;
  std::string group;
  std::uint64_t group_id = 0;  ///< as FlightGroup::id
  std::string missing;         ///< "rank 2", "ranks 1, 3 (world rank 6)"
  std::string root_cause;      ///< who keeps the others waiting, and what it does
  std::string text;            ///< all of it, for people
};

/// The board is the place of the record: zeroed memory that the ranks share, without pointers.
/// There is one record in each epoch (recoveries so far); a later epoch's takes the place of the
/// one before.
class AbortBoard {
 public:
  /// Puts `mine` there unless the epoch has a record; true if it was put. What does not fit is
  /// shortened. A record of another one can be read on return, unless its writer died in the
  /// middle.
  bool claim(std::uint64_t epoch, const AbortRecord& mine);
  /// The writer of the epoch's record has told it: where `claim` said true, this must follow.
  void tell(std::uint64_t epoch) { told_.store(epoch + 1, std::memory_order_release); }
  /// Waits until the record was told, for `longest` at most, since its writer may have died.
  void wait_until_told(std::uint64_t epoch, std::chrono::milliseconds longest) const;
  /// Tells whether the epoch has a record; it costs one load.
  bool written(std::uint64_t epoch) const {
    return written_.load(std::memory_order_acquire) == epoch + 1;
  }
  /// Any thread or process may call it, and gets the record of an epoch, or the newest.
  std::optional<AbortRecord> read(std::uint64_t epoch) const;
  std::optional<AbortRecord> newest() const;

 private:
  static constexpr std::size_t kBytes = 4096;

  alignas(64) std::atomic<std::uint64_t> claimed_;  ///< epoch + 1 of who writes or has written
  std::atomic<std::uint64_t> written_;              ///< epoch + 1 of what can be read
  std::atomic<std::uint64_t> told_;
  std::atomic<std::uint64_t> bytes_;
  std::array<std::atomic<std::uint64_t>, kBytes / 8> words_;
};

}  // namespace meshloom::comm
