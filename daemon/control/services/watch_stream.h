// SPDX-License-Identifier: Apache-2.0
// One client's view of a job: its present state, then every event.
#pragma once

#include <cstdint>
#include <string>

#include "daemon/control/services/stream.h"
#include "daemon/control/stores/job_store.h"
#include "v1/job_service.pb.h"

namespace meshloom::control {

class WatchStream final : public Stream<v1::WatchJobResponse> {
 public:
  WatchStream(StreamHost& host, const Caller& caller, JobStore& store,
              const v1::WatchJobRequest& request)
      : Stream(host, caller, "WatchJob"), store_(store), request_(request) {}

 private:
  bool produce() override;
  /// False if there is nothing after what the client knows.
  bool begin();

  JobStore& store_;
  const v1::WatchJobRequest request_;
  bool begun_ = false;
  bool is_own_ = false;  ///< the job is the caller's
  std::string id_;
  std::int64_t revision_ = 0;  ///< of the last event that was written
  Subscription subscription_;
};

}  // namespace meshloom::control
