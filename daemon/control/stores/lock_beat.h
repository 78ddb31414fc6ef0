// SPDX-License-Identifier: Apache-2.0
// LockBeat: tells a second daemon of the first where a file system has no locks.
#pragma once

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>

#include "daemon/control/host/ticker.h"

namespace meshloom::control {

/// A file that its owner writes again and again: who it is and a number that grows. Who starts
/// watches it first; one that moves is somebody else's. Every look opens the file anew and every
/// beat is synced, so that hosts with caches of their own see it. It cannot tell a daemon that is
/// stopped from one that is dead: one that goes on after another has begun hears of that
/// by its observer.
class LockBeat {
 public:
  struct Times {
    std::chrono::milliseconds beat{1000};
    /// How long the beat of a daemon that is alive may stand still, on a host that is busy.
    std::chrono::milliseconds still{10'000};
  };

  class Observer {
   public:
    virtual ~Observer() = default;
    /// Another daemon writes to the file. Called once, from a thread of the beat's own.
    virtual void lock_taken(const std::string& who) = 0;
  };

  /// Throws FailedPrecondition (STATE_DIR_LOCKED) naming who has it, after Times::still at most
  /// where somebody may, and two beats in any case: of two that begin at once one goes on. The
  /// observer outlives it; null: nobody hears of it.
  LockBeat(std::filesystem::path file, const Times& times, Observer* observer);
  /// Empties the file, so that the next start need not watch it.
  ~LockBeat();
  LockBeat(const LockBeat&) = delete;
  LockBeat& operator=(const LockBeat&) = delete;

 private:
  void watch() const;
  void claim();
  void beat();
  void write() const;
  bool is_own(const std::string& text) const;

  const std::filesystem::path path_;
  const Times times_;
  Observer* const observer_;
  const std::string owner_;  ///< the first lines of the file: no other daemon's are equal
  std::int64_t number_ = 0;
  bool lost_ = false;
  bool failed_ = false;
  std::unique_ptr<Ticker> ticker_;  ///< the last: its thread uses the others
};

/// Who has the lock by what its file says: "pid 12 on node1".
std::string lock_owner(const std::filesystem::path& file);

}  // namespace meshloom::control
