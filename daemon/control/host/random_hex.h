// SPDX-License-Identifier: Apache-2.0
// Random bits of the kernel.
#pragma once

#include <string>

namespace meshloom::control {

/// 128 fresh random bits as 32 hexadecimal digits. Throws InternalError where the system has none.
std::string random_hex();

}  // namespace meshloom::control
