// SPDX-License-Identifier: Apache-2.0
// LauncherWatch sees when the launchers (mpirun) of a daemon's ranks on this host have ended, which
// they do after the ranks.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "daemon/base/process_stat.h"
#include "v1/worker_service.pb.h"

namespace meshloom::cli {

class LauncherWatch {
 public:
  /// Finds the launchers of those `workers` whose host is this one. `proc` is a parameter for
  /// tests.
  explicit LauncherWatch(const v1::ListWorkersResponse& workers, const std::string& this_host,
                         std::filesystem::path proc = "/proc");

  /// Returns whether all of them have ended; true if there are none.
  bool ended() const;

 private:
  struct Launcher {
    pid_t pid = 0;
    std::uint64_t start_time = 0;  ///< which process of that number it is
  };

  /// Returns nothing of a process that has ended.
  std::optional<base::ProcessStat> look_at(pid_t pid) const;

  std::filesystem::path proc_;
  std::vector<Launcher> launchers_;
};

}  // namespace meshloom::cli
