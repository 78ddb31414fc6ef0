// SPDX-License-Identifier: Apache-2.0
// ExportCheckpoint: how far the export of a checkpoint is, then what was written.
#pragma once

#include <atomic>
#include <string>

#include "daemon/control/services/stream.h"
#include "daemon/control/stores/job_store.h"
#include "daemon/control/stores/state_dir.h"
#include "v1/checkpoint_service.pb.h"

namespace meshloom::control {

/// Writes the folder on the host's thread in one go; a host with one thread writes one at a time.
class ExportStream final : public Stream<v1::ExportCheckpointResponse> {
 public:
  struct World {
    const JobStore& store;
    const StateDir& state;
    const std::atomic<bool>& stopping;  ///< an export that is under way is given up
  };
  ExportStream(StreamHost& host, const Caller& caller, const World& world,
               const v1::ExportCheckpointRequest& request)
      : Stream(host, caller, "ExportCheckpoint"), world_(world), request_(request) {}

 private:
  bool produce() override;
  v1::ExportedFolder write_folder();

  const World world_;
  const v1::ExportCheckpointRequest request_;
};

}  // namespace meshloom::control
