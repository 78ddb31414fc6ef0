// SPDX-License-Identifier: Apache-2.0
// Usage: how much of each limit owners have, and who has no more room on the disk.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <mutex>
#include <string>

#include "daemon/control/access/identity.h"
#include "daemon/control/access/limits.h"
#include "daemon/control/host/ticker.h"
#include "daemon/control/runs/run_manager.h"
#include "daemon/control/stores/job_store.h"
#include "daemon/control/stores/state_dir.h"
#include "daemon/control/stores/transient_uploads.h"
#include "v1/access_service.pb.h"

namespace meshloom::control {

/// What lies on the disk is found by looking at the folders of jobs and runs and at the owners'
/// folders of the data dir: whoever has written or removed it, that counts. It is looked at every
/// few seconds where the disk is limited, else when it is asked for. Any thread may call any
/// method.
class Usage {
 public:
  struct World {
    const JobStore& jobs;
    RunManager& runs;
    const TransientUploads& transients;
    const StateDir& state;
    std::string data_dir;
    Limits limits;
  };
  explicit Usage(const World& world);

  /// Of `who`; of everybody and all together where that is an admin.
  v1::GetUsageResponse tell(const Identity& who) const;
  /// Throws ResourceExhausted (DISK_QUOTA_EXCEEDED) where no more may be written for an owner. It
  /// goes by the last look and does not wait.
  void check_disk(const std::string& owner) const;
  /// Looks at the disk now.
  void look() const;

 private:
  using ByOwner = std::map<std::string, std::int64_t>;
  ByOwner use_of(LimitKind kind) const;
  ByOwner bytes_on_disk() const;

  const World world_;
  mutable std::mutex mutex_;
  mutable ByOwner on_disk_;         ///< as the last look has found it
  std::unique_ptr<Ticker> ticker_;  ///< null: nothing limits the disk
};

}  // namespace meshloom::control
