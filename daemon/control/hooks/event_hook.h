// SPDX-License-Identifier: Apache-2.0
// EventHook: a program of the daemon's owner is started for what becomes of jobs.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <string>
#include <thread>

#include "daemon/control/hooks/hook_spool.h"
#include "daemon/control/host/daemon_service.h"
#include "daemon/control/host/wakeable.h"
#include "daemon/control/stores/event_log.h"

namespace meshloom::control {

/// For each state that a job comes to and each condition that has come to hold, one at a time and
/// in order, on a thread of its own: training and clients never wait for it. One that fails is
/// started three times, then again at the next start of the daemon, before others.
class EventHook final : public DaemonService {
 public:
  struct Options {
    std::string command;  ///< of a shell; empty: there is no hook
    std::filesystem::path spool;
    std::chrono::milliseconds limit = std::chrono::seconds(30);
    std::chrono::milliseconds back_off = std::chrono::seconds(1);  ///< then twice as long
  };
  EventHook(EventLog& log, Options options);
  ~EventHook() override;

  void start() override;
  /// What runs is killed, and started again by the next daemon.
  void stop() override;

 private:
  struct Waker final : Wakeable {
    void wake() override;
    std::mutex mutex;
    std::condition_variable changed;
    bool due = true;  ///< there may be lines that were not looked at
  };

  void run();
  /// Up to three times; false if it has failed, or the daemon stops.
  bool deliver(const std::string& line);
  /// False if the daemon stops.
  bool wait(std::chrono::milliseconds time);

  EventLog& log_;
  const Options options_;
  const std::shared_ptr<Waker> waker_ = std::make_shared<Waker>();
  std::atomic<bool> stop_{false};
  Subscription subscription_;
  std::thread thread_;
};

}  // namespace meshloom::control
