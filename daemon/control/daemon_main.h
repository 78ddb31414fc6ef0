// SPDX-License-Identifier: Apache-2.0
// daemon_main: one rank of the daemon as a whole program.
#pragma once

namespace meshloom::control {

/// What main() of meshloomd does once the table of devices (kernels/backend_table.h) is filled, and
/// its exit code: 0 after an orderly stop, 1 after a failure, 2 for a wrong command line or config.
int daemon_main(int argc, char** argv);

}  // namespace meshloom::control
