// SPDX-License-Identifier: Apache-2.0
// Bytes that come one by one, as whole UTF-8 characters.
#pragma once

#include <string>

namespace meshloom::control {

class ByteText {
 public:
  /// The text that became complete with this byte; U+FFFD for bytes that cannot be part of UTF-8.
  std::string append(unsigned char byte);
  /// What an unfinished character leaves at the end.
  std::string finish();

 private:
  std::string pending_;
  int missing_ = 0;  ///< continuation bytes that the pending character still needs
};

}  // namespace meshloom::control
