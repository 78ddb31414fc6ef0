// SPDX-License-Identifier: Apache-2.0
// Secrets that tell callers who may from those who may not.
#pragma once

#include <string>
#include <string_view>

namespace meshloom::control {

/// 128 fresh random bits as 32 hexadecimal digits. Throws InternalError where the system has none.
std::string random_secret();
/// Takes the same time wherever two texts of one length differ.
bool same_secret(std::string_view given, std::string_view expected);

}  // namespace meshloom::control
