// SPDX-License-Identifier: Apache-2.0
// Descriptors 0 to 2 of a program that may have been started without them.
#pragma once

namespace meshloom::base {

/// Opens those of descriptors 0 to 2 that are closed on /dev/null, so that no pipe, socket or file
/// gets their number and with it what the program prints. It is the first call of main. It ends the
/// process with code 1 if /dev/null cannot be opened.
void open_standard_streams();

}  // namespace meshloom::base
