// SPDX-License-Identifier: Apache-2.0
// Copying a checkpoint or export from the daemon into a folder.
#pragma once

#include <cstdint>
#include <string>

#include "daemon/cli/client.h"

namespace meshloom::cli {

struct DownloadResult {
  std::int64_t files = 0;
  std::int64_t bytes = 0;
};

/// Writes the files to FOLDER.part and renames it when every file has its size and digest. Throws
/// CliError: kUsage if the folder exists, kFailed for a wrong digest or a file name that leads
/// outside.
DownloadResult download_checkpoint(Client& client, const std::string& name,
                                   const std::string& folder);

}  // namespace meshloom::cli
