// SPDX-License-Identifier: Apache-2.0
// EpochReserve: epochs that the journal has promised before they are given out.
#pragma once

#include <algorithm>
#include <cstdint>

namespace meshloom::control {

/// Epochs are promised in blocks, so that few records are written and no epoch is given out twice,
/// not even by a daemon that died between giving one out and writing it down. Not synchronised.
class EpochReserve {
 public:
  /// Of replay: none up to here is given out again.
  void skip(std::int64_t epoch) { asked_ = newest_ = std::max(newest_, epoch); }

  std::int64_t newest() const { return newest_; }
  /// What a record that promises all asked epochs holds.
  std::int64_t asked() const { return asked_; }

  bool can_give() const { return newest_ < promised_; }
  std::int64_t give() { return ++newest_; }

  bool running_out() const { return asked_ - newest_ < kBlock / 2; }
  /// Asks for the next block: returns what the record of it holds.
  std::int64_t ask() { return asked_ = newest_ + kBlock; }
  /// Such a record is durable.
  void promise(std::int64_t epoch) { promised_ = std::max(promised_, epoch); }

 private:
  static constexpr std::int64_t kBlock = 64;

  std::int64_t newest_ = 0;    ///< that was given out
  std::int64_t asked_ = 0;     ///< the journal is to promise up to here
  std::int64_t promised_ = 0;  ///< and it has up to here
};

}  // namespace meshloom::control
