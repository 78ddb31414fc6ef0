// SPDX-License-Identifier: Apache-2.0
// `job tensorboard` writes event files of jobs here, from what a daemon elsewhere streams.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "daemon/cli/client.h"

namespace meshloom::cli {

struct TensorboardOptions {
  std::vector<std::string> jobs;
  std::filesystem::path out;
  bool follow = false;  ///< until all jobs have ended, else what there is now
};

/// Writes a file into OUT/NAME for each job: what the daemon itself writes into the job's folder,
/// also of jobs that were trained before it did. Where there are files already it takes their place
/// for who looks at the folder. With `follow` it goes on over restarts of the daemon.
ExitCode write_tensorboard(Client& client, bool json, const TensorboardOptions& options);

}  // namespace meshloom::cli
