// SPDX-License-Identifier: Apache-2.0
// daemon_main: one rank of the daemon as a whole program.
#pragma once

namespace meshloom::control {

/// Runs one rank as a whole program, and returns its exit code: 0 after an orderly stop, 1 after a
/// failure, 2 for a wrong command line or config. The table of devices (kernels/backend_table.h)
/// holds the CPU by then; `add_devices`, unless null, adds those that take time and threads to
/// find: it is called once it is known that a rank is to start, after signals are set up for all
/// threads to come.
int daemon_main(int argc, char** argv, void (*add_devices)() = nullptr);

}  // namespace meshloom::control
