// SPDX-License-Identifier: Apache-2.0
// LauncherEnd: what a SIGCONT of Open MPI's launcher means.
#pragma once

#include <sys/types.h>

#include <chrono>

namespace meshloom::control {

/// The launcher of this process sends a SIGCONT when it begins to end its ranks, and one when it
/// passes on a SIGCONT that it got itself, as from a scheduler that resumes a suspended job. It
/// ends them by a SIGCONT, a sleep, and SIGTERM; a launcher that does not end its ranks waits for
/// events and never sleeps for long. Open MPI 4 sleeps for odls_base_sigkill_timeout, Open MPI 5
/// (PRRTE) for a quarter of a second before SIGTERM and before SIGKILL, which nothing lengthens and
/// a rank that ends shortens. Where the kernel does not tell what a process waits for
/// (/proc/PID/wchan), no end is found here, and SIGTERM is the first that is heard of it. Used by
/// one thread.
class LauncherEnd {
 public:
  /// Between two looks.
  static constexpr std::chrono::milliseconds kInterval{10};

  /// A SIGCONT has come from this process. Nothing is looked for unless it is a launcher of Open
  /// MPI by its name (mpirun, orted, prterun, prted and their other names) and the parent of this
  /// process.
  void suspect(pid_t sender);
  /// Whether look() is to be called, an interval after it was called last.
  bool is_suspected() const { return looks_left_ > 0; }
  /// True, once, when the launcher has been asleep for a while. Gives up after a second.
  bool look();
  pid_t launcher() const { return launcher_; }

 private:
  pid_t launcher_ = -1;
  int looks_left_ = 0;
  int looks_asleep_ = 0;  ///< in a row, that have found it asleep
  int looks_needed_ = 0;
};

}  // namespace meshloom::control
