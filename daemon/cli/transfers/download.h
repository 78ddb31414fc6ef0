// SPDX-License-Identifier: Apache-2.0
// A download copies a checkpoint, an export or a run's weights from the daemon into a folder.
#pragma once

#include <cstdint>
#include <string>

#include "daemon/cli/client.h"

namespace meshloom::cli {

struct DownloadOptions {
  std::string name;     ///< as of ReadCheckpointRequest
  std::string folder;   ///< to be made
  bool resume = false;  ///< goes on with what a download of the same files has left behind
  bool quiet = false;   ///< shows no progress
};

struct DownloadResult {
  std::int64_t files = 0;  ///< in the folder
  std::int64_t bytes = 0;
  bool compared = false;  ///< with the digests that the daemon's folder has for them
};

/// Writes the files to FOLDER.part, the one that is not complete to FOLDER.part.file, and renames
/// the folder when every file has its size and digest. Connects again if the connection breaks, and
/// goes on where it was; both stay for `resume` if that does not help. Throws CliError: kUsage if
/// the folder exists or there is nothing to resume, kFailed for a wrong digest or a file name that
/// leads outside.
DownloadResult download_files(Client& client, const DownloadOptions& options);

}  // namespace meshloom::cli
