// SPDX-License-Identifier: Apache-2.0
// Retention: removes ended jobs that the configuration does not keep.
#pragma once

#include <chrono>
#include <thread>

#include "daemon/control/stores/job_store.h"

namespace meshloom::control {

/// Has a thread of its own if there is anything to remove ever. Ends once the store is closed.
class Retention {
 public:
  Retention(JobStore& store, JobStore::Keep keep);
  /// Closes the store.
  ~Retention();
  Retention(const Retention&) = delete;
  Retention& operator=(const Retention&) = delete;

 private:
  void run();

  JobStore& store_;
  const JobStore::Keep keep_;
  std::thread thread_;
};

}  // namespace meshloom::control
