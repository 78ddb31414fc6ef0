// SPDX-License-Identifier: Apache-2.0
// The files of a checkpoint or export, in pieces, each with its digest at its end.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "daemon/control/services/stream.h"
#include "daemon/control/stores/checkpoint_files.h"
#include "daemon/control/stores/job_store.h"
#include "daemon/train/checkpoint/digest.h"

namespace meshloom::control {

class DownloadStream final : public Stream<v1::ReadCheckpointResponse> {
 public:
  /// `name`: checkpoints/JOB/FOLDER.
  DownloadStream(StreamHost& host, grpc::CallbackServerContext& context, const JobStore& store,
                 const StateDir& state, std::string name)
      : Stream(host, context, "ReadCheckpoint"),
        store_(store),
        state_(state),
        name_(std::move(name)) {}

 private:
  bool produce() override;
  void open_all();
  v1::ReadCheckpointResponse next_piece();

  const JobStore& store_;
  const StateDir& state_;
  const std::string name_;
  bool opened_ = false;
  std::vector<OpenFile> files_;
  std::size_t file_ = 0;  ///< the one that is read
  std::int64_t offset_ = 0;
  train::Digest digest_;  ///< of the file up to the offset
};

}  // namespace meshloom::control
