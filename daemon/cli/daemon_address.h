// SPDX-License-Identifier: Apache-2.0
// A command that names no daemon finds here which one it is for.
#pragma once

#include <filesystem>
#include <optional>
#include <string>

#include "daemon/base/env.h"

namespace meshloom::cli {

/// AskedDaemon holds what the command line says.
struct AskedDaemon {
  std::string address;    ///< --address; empty: not given
  std::string state_dir;  ///< --state-dir; empty: not given
};

/// This is the address of no daemon: nobody can listen on its port.
inline constexpr const char* kNoAddress = "127.0.0.1:0";

struct DaemonAddress {
  std::string address;
  /// It is told where no daemon answers there; may be empty. Where it says all, it stands for what
  /// else would be told.
  std::string note;
  bool note_says_all = false;
};

/// Returns the first of these that there is:
///   - --address, the daemon that runs on --state-dir, MESHLOOM_ADDRESS;
///   - the daemon that runs on MESHLOOM_STATE_DIR, or on meshloom-state in the working folder;
///   - that which this account started last by `meshloom up`;
///   - 127.0.0.1:7420.
/// An address that a daemon has left behind when it was killed is none. No other daemon stands for
/// that of a state dir that is named (is_state_dir_named), nor for one that is about to serve on
/// meshloom-state: the address is kNoAddress then, and the note says why.
DaemonAddress find_address(const AskedDaemon& asked, const base::Environment& environment);

/// Returns whether --state-dir or MESHLOOM_STATE_DIR is given.
bool is_state_dir_named(const AskedDaemon& asked, const base::Environment& environment);

/// Returns the state dir of `up` and `down` where no daemon has to run on it: --state-dir,
/// MESHLOOM_STATE_DIR, or meshloom-state in the working folder. Absolute.
std::filesystem::path state_dir_of(const AskedDaemon& asked, const base::Environment& environment);

}  // namespace meshloom::cli
