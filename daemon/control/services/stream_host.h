// SPDX-License-Identifier: Apache-2.0
// What the streams of one method share: slots, threads that produce, and a limit on a write's time.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "daemon/control/net/slots.h"

namespace meshloom::control {

/// gRPC runs the reactions of all streams of a process on a few threads, so that one that waits for
/// a disk, a lock or a rank stops them all. What streams write is therefore made by threads of
/// their host. Clients (Caller::address) take turns, and where there are four threads or more none
/// has more than three quarters of them, so that work which takes long for one client does not keep
/// the others waiting. All methods may be called from any thread.
class StreamHost {
 public:
  using Clock = std::chrono::steady_clock;
  struct Options {
    std::string what;  ///< of which there may be so many, in texts
    int most_streams = 1;
    int threads = 1;
    std::chrono::milliseconds write_timeout{30'000};
  };
  /// A stream as its host sees it.
  class Guest {
   public:
    virtual ~Guest() = default;
    /// Cuts the stream off if its client has taken nothing since `limit`; whether it did.
    virtual bool cut_off_if_stuck(Clock::time_point limit) = 0;
  };

  explicit StreamHost(const Options& options);
  ~StreamHost();
  StreamHost(const StreamHost&) = delete;
  StreamHost& operator=(const StreamHost&) = delete;

  Slots& slots() { return slots_; }
  /// Watches the stream's writes as long as it lives.
  void add(std::weak_ptr<Guest> guest);
  /// Runs on one of the host's threads, those of a client in order of calls. Must not throw.
  /// Dropped after stop().
  void post(const std::string& client, std::function<void()> task);
  /// Tasks that have not begun are dropped, one that has is waited for. The server of the streams
  /// must have been shut down.
  void stop();

 private:
  struct Client {
    std::deque<std::function<void()>> tasks;
    int running = 0;
    std::int64_t served = 0;  ///< when one of its tasks was begun last, by a count
  };

  void work();
  /// The next one with a task that may run; none if all are of clients with their share.
  std::map<std::string, Client>::iterator next_client();
  void watch_writes();

  const Options options_;
  Slots slots_;
  std::mutex mutex_;
  std::condition_variable tasks_changed_;
  std::condition_variable guests_changed_;
  std::map<std::string, Client> clients_;  ///< with a task each
  std::int64_t begun_ = 0;
  std::vector<std::weak_ptr<Guest>> guests_;
  bool ending_ = false;
  std::vector<std::thread> threads_;
};

}  // namespace meshloom::control
