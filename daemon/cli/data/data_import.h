// SPDX-License-Identifier: Apache-2.0
// An upload becomes a file below the daemon's data dir.
#pragma once

#include <optional>
#include <string>

#include "daemon/cli/client.h"

namespace meshloom::cli {

struct DataImport {
  std::string upload;  ///< "uploads/NAME"
  std::string path;
  bool overwrite = false;
};

/// Makes the file. Returns nothing after Ctrl-C. Throws CliError.
std::optional<v1::ImportedFile> import_upload(Client& client, bool json, const DataImport& asked);
/// Checks the path before there is an upload. Throws CliError; returns false after Ctrl-C.
bool check_import(Client& client, const DataImport& asked);

/// Prints for people what was made, and how a job names it.
void print_imported(const v1::ImportedFile& file);

}  // namespace meshloom::cli
