// SPDX-License-Identifier: Apache-2.0
// FailureChannel over shared memory: a board for the failure, and a seat for each rank's part of an
// exchange.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>

#include "daemon/comm/failure/failure_channel.h"
#include "daemon/comm/transport/shared_memory_transport.h"

namespace meshloom::comm {

/// It lives in zeroed memory that all ranks share, without pointers.
struct FailureBoard {
  /// The highest urgency of a failure: what waits look at.
  alignas(64) std::atomic<std::uint64_t> raised;
  /// Epoch + 1 of the newest text: claimed by who writes it, then written.
  alignas(64) std::atomic<std::uint64_t> claimed;
  std::atomic<std::uint64_t> written;
  struct Text {
    std::int32_t rank;
    std::uint32_t bytes;
    char text[FailureChannel::kLongestText];
  };
  Text texts[2];  ///< of even and odd epochs: all have read one before the next but one is written
};

/// A rank puts its part of an exchange into its seat. Rounds count from 1.
struct Seat {
  static constexpr std::size_t kBytes = 8192;
  static constexpr std::uint64_t kLeft = ~std::uint64_t{0};
  alignas(64) std::atomic<std::uint64_t> written;  ///< rounds that this rank has written
  std::atomic<std::uint64_t> read;                 ///< rounds in which it has read all others
  std::atomic<std::uint64_t> quiet;                ///< how often it has quiesced; kLeft: it is gone
  std::uint64_t total;                             ///< bytes over all rounds of this exchange
  std::uint64_t begin;                             ///< where this round's bytes belong
  char text[kBytes];
};

/// FailureField holds the board and the seats of all ranks.
struct FailureField {
  FailureBoard* board = nullptr;
  Seat* seats = nullptr;
  int world_size = 0;
};

/// Makes the channel. `endpoint` is this rank's. `timeout` is for each wait for all ranks after a
/// failure. `quiesces`, the same on all ranks: they meet before waits end, since they touch each
/// other's buffers.
std::unique_ptr<FailureChannel> make_shared_memory_failure_channel(
    std::shared_ptr<const FailureField> field, std::shared_ptr<RingEndpoint> endpoint,
    std::chrono::milliseconds timeout, bool quiesces);

}  // namespace meshloom::comm
