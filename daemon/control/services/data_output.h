// SPDX-License-Identifier: Apache-2.0
// DataOutputs: files below the data folders that are written for clients.
#pragma once

#include <filesystem>
#include <mutex>
#include <set>
#include <string>

#include "daemon/control/access/identity.h"
#include "daemon/control/host/hold.h"

namespace meshloom::control {

/// Below which folder of the data dir `who` may write: that of its name; empty, which is anywhere,
/// of an admin. Throws AccessError (NO_DATA_FOLDER) for a name that can be no folder.
std::string own_data_folder(const Identity& who);

/// All methods may be called from any thread.
class DataOutputs {
 public:
  /// Nothing is written into the state folder.
  DataOutputs(std::filesystem::path data_dir, std::filesystem::path state_dir)
      : data_dir_(std::move(data_dir)), state_dir_(std::move(state_dir)) {}

  /// As a client names a file; `field` is that of its request.
  struct Asked {
    std::string field;
    std::string name;
    bool overwrite = false;
    bool makes_folders = false;  ///< that are not there, on the way to it
    /// The folder of the data dir that it must lie below; empty: it may lie anywhere.
    std::string below = {};
  };
  struct Place {
    std::filesystem::path path;
    /// As long as it is held nobody else gets the path. Must not outlive the DataOutputs.
    Hold claim;
  };
  /// Where a file is to be written. Throws InvalidArgument with the field, NotFound for a folder
  /// that is not there and is not to be made, AlreadyExists (ALREADY_EXISTS), FailedPrecondition
  /// (PERMISSION_DENIED), Aborted (FILE_BUSY).
  Place claim(const Asked& asked);
  /// Where it would be written. Throws as claim, but for FILE_BUSY.
  std::filesystem::path look(const Asked& asked) const;
  /// What claim() throws of a file that is there, for one that has come since.
  [[noreturn]] static void refuse_existing(const std::string& field,
                                           const std::filesystem::path& path);
  /// As a job names it: relative to its data folder, if that is where a job would find it.
  std::string name_for_jobs(const std::filesystem::path& path) const;

 private:
  std::filesystem::path find(const Asked& asked) const;
  /// Throws AccessError (NOT_OWNER) for a file that does not lie in the folder where it must.
  void check_below(const std::filesystem::path& folder, const Asked& asked) const;
  /// Of a file in `above`: below the data dir, where its last parts may have to be made.
  std::filesystem::path folder_of(const std::filesystem::path& above, const Asked& asked) const;
  static void check(const std::filesystem::path& path, const Asked& asked);
  Hold take(const std::filesystem::path& path);

  const std::filesystem::path data_dir_, state_dir_;
  std::mutex mutex_;
  std::set<std::filesystem::path> taken_;
};

}  // namespace meshloom::control
