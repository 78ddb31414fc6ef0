// SPDX-License-Identifier: Apache-2.0
// DaemonProcess: a daemon of its own for a benchmark.
#pragma once

#include <sys/types.h>

#include <filesystem>
#include <string>

#include "tests/support/temp_folder.h"

namespace meshloom::bench {

class DaemonProcess {
 public:
  struct Options {
    std::string daemon = "meshloomd";
    std::string client = "meshloom";
    int ranks = 1;
    int threads = 0;  ///< of a rank; 0: the daemon's default
  };
  /// Starts it by mpirun, in a temporary folder, and waits until it serves. Throws DeadlineExceeded
  /// with its output if it does not within 30 s.
  explicit DaemonProcess(const Options& options);
  /// Shuts it down and waits for its end.
  ~DaemonProcess();
  DaemonProcess(const DaemonProcess&) = delete;
  DaemonProcess& operator=(const DaemonProcess&) = delete;

  const std::string& address() const { return address_; }
  std::filesystem::path state_dir() const { return folder_.path() / "state"; }
  std::filesystem::path data_dir() const { return folder_.path() / "data"; }

 private:
  const Options options_;
  const test::TempFolder folder_;
  const std::string address_;
  pid_t process_ = 0;
};

}  // namespace meshloom::bench
