// SPDX-License-Identifier: Apache-2.0
// JobDriver: takes queued jobs one after the other and drives each with the same verbs any client
// has.
#pragma once

#include <atomic>
#include <filesystem>
#include <mutex>
#include <string>
#include <thread>

#include "daemon/control/executor.h"
#include "daemon/control/job_store.h"
#include "daemon/control/state_dir.h"

namespace meshloom::control {

class JobDriver {
 public:
  JobDriver(JobStore& store, Executor& executor, const StateDir& state,
            std::filesystem::path data_dir);
  ~JobDriver();
  JobDriver(const JobDriver&) = delete;
  JobDriver& operator=(const JobDriver&) = delete;

  /// Starts taking jobs. Call when all ranks have joined.
  void start();
  /// The running job saves at its next step boundary and stays unfinished; no other is started.
  /// Does not wait.
  void request_stop();
  /// Waits until the driver has let go of its job.
  void join();

 private:
  void run();
  void run_job(const std::string& id);

  JobStore& store_;
  Executor& executor_;
  const StateDir& state_;
  std::filesystem::path data_dir_;
  std::atomic<bool> stop_{false};
  std::mutex thread_mutex_;  ///< a stop may come while the last rank joins
  std::thread thread_;
};

}  // namespace meshloom::control
