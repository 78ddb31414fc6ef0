// SPDX-License-Identifier: Apache-2.0
// Descriptors 0 to 2 of a program that outlives the terminal or pipe that it was started with.
#pragma once

namespace meshloom::control {

/// Calls base::open_standard_streams(), and ignores SIGPIPE: if the reader of standard error has
/// left, lines are lost and nothing else. Call first thing in main.
void keep_standard_streams();

}  // namespace meshloom::control
