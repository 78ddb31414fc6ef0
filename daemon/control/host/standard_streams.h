// SPDX-License-Identifier: Apache-2.0
// Descriptors 0 to 2 of a program that outlives the terminal or pipe that it was started with.
#pragma once

namespace meshloom::control {

/// Opens those of descriptors 0 to 2 that are closed on /dev/null, so that no socket or file gets
/// their number and log lines with it, and ignores SIGPIPE: if the reader of standard error has
/// left, lines are lost and nothing else. Call first thing in main. Ends the process with code 1
/// if /dev/null cannot be opened.
void keep_standard_streams();

}  // namespace meshloom::control
