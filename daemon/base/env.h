// SPDX-License-Identifier: Apache-2.0
// Every environment variable that Meshloom reads, in one place.
#pragma once

#include <optional>
#include <string>

namespace meshloom::base {

/// It is read once at the start of a program and passed on. Flags win over these. Three more are
/// read elsewhere: by kernels/cpu MESHLOOM_CPU_CLASS (avx2, avx512, ...), which lowers what the CPU
/// kernels use, for tests; by comm/mesh MESHLOOM_SYMMETRIC_MEMORY (auto, fd_folder, socket, off),
/// how ranks of a host share memory, and MESHLOOM_HIERARCHY (auto, leaders, striped, off), how data
/// passes between hosts, the same on all ranks.
struct Environment {
  /// MESHLOOM_ADDRESS: host:port of the daemon that `meshloom` talks to. Default 127.0.0.1:7420.
  std::optional<std::string> address;
  /// MESHLOOM_STATE_DIR, MESHLOOM_DATA_DIR: as the flags of meshloomd.
  std::optional<std::string> state_dir;
  std::optional<std::string> data_dir;
  /// MESHLOOM_THREADS: as the flag of meshloomd.
  std::optional<int> threads;
  /// MESHLOOM_LOG_LEVEL: as the flag of meshloomd.
  std::optional<std::string> log_level;
  /// MESHLOOM_HOST: address by which other hosts reach this one, and on which rank 0 listens for
  /// their ranks. Default: that of --mpi-interface, else the first that is no loopback.
  std::optional<std::string> host;
  /// MESHLOOM_RUN_TOKEN: of the run that a command of `meshloom` drives, as run create printed it.
  std::optional<std::string> run_token;
  /// MESHLOOM_TOKEN_FILE, MESHLOOM_CA, MESHLOOM_CERT, MESHLOOM_KEY: files by which a client knows a
  /// daemon and shows who it is, as the options of `meshloom`.
  std::optional<std::string> token_file, ca, cert, key;
  /// HOME and XDG_CONFIG_HOME: below them are the files of clients for each daemon.
  std::optional<std::string> home, config_home;
  /// NO_COLOR is set to something, or TERM is "dumb": output without colours.
  bool no_colour = false;
};

/// Reads the environment. Empty variables count as not set. Throws InvalidArgument naming the
/// variable if a value is wrong.
Environment read_environment();

/// Returns the rank that mpirun started this process as (PMIX_RANK), known before MPI is; 0 for a
/// process that it did not start.
int launched_rank();

}  // namespace meshloom::base
