// SPDX-License-Identifier: Apache-2.0
// What the operating system says of an error.
#pragma once

#include <cstring>
#include <string>

namespace meshloom::base {

/// Returns the system's text for an errno; any thread may ask, which strerror does not promise.
inline std::string system_message(int error) {
  char text[256];
  return ::strerror_r(error, text, sizeof(text));  // glibc's, which returns the text
}

}  // namespace meshloom::base
