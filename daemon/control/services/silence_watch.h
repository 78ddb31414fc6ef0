// SPDX-License-Identifier: Apache-2.0
// SilenceWatch: cuts off clients that stream to the daemon and send next to nothing.
#pragma once

#include <chrono>
#include <cstdint>
#include <mutex>
#include <set>

#include "daemon/control/host/ticker.h"
#include "daemon/control/services/request_stream.h"

namespace meshloom::control {

/// A call that waits for its client holds a thread, and with it the right to write. One that has
/// waited for `limit` while less than kLeastBytes came is cut off. All methods may be called from
/// any thread.
class SilenceWatch {
 public:
  static constexpr std::int64_t kLeastBytes = 64 << 10;

  explicit SilenceWatch(std::chrono::milliseconds limit);

  /// A call, as long as its handler runs.
  class Call {
   public:
    Call(SilenceWatch& watch, CutOff& client);
    ~Call();
    Call(const Call&) = delete;
    Call& operator=(const Call&) = delete;

    /// Around each read: only the time in between counts.
    void begin_wait();
    void end_wait(std::int64_t bytes);

   private:
    friend class SilenceWatch;
    using Clock = std::chrono::steady_clock;

    SilenceWatch& watch_;
    CutOff& client_;
    bool waiting_ = false;
    Clock::time_point since_;
    Clock::duration waited_{};
    std::int64_t bytes_ = 0;
  };

 private:
  void look();

  const std::chrono::milliseconds limit_;
  std::mutex mutex_;
  std::set<Call*> calls_;
  Ticker ticker_;
};

}  // namespace meshloom::control
