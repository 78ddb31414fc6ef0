// SPDX-License-Identifier: Apache-2.0
#include "daemon/control/byte_text.h"

namespace meshloom::control {
namespace {

constexpr const char* kReplacement = "\xEF\xBF\xBD";

/// Continuation bytes after a first byte; -1 for bytes that begin nothing.
int continuation_bytes(unsigned char first) {
  if (first < 0x80) return 0;
  if (first >= 0xC2 && first <= 0xDF) return 1;
  if (first >= 0xE0 && first <= 0xEF) return 2;
  if (first >= 0xF0 && first <= 0xF4) return 3;
  return -1;
}

/// Overlong forms, surrogates and code points above U+10FFFF show in the second byte.
bool second_byte_fits(unsigned char first, unsigned char second) {
  switch (first) {
    case 0xE0: return second >= 0xA0;
    case 0xED: return second < 0xA0;
    case 0xF0: return second >= 0x90;
    case 0xF4: return second < 0x90;
    default: return true;
  }
}

}  // namespace

std::string ByteText::append(unsigned char byte) {
  std::string out;
  if (missing_ > 0) {
    const bool continues =
        (byte & 0xC0) == 0x80 &&
        (pending_.size() > 1 || second_byte_fits(static_cast<unsigned char>(pending_[0]), byte));
    if (continues) {
      pending_ += static_cast<char>(byte);
      if (--missing_ > 0) return "";
      out.swap(pending_);
      return out;
    }
    out = finish();
  }
  missing_ = continuation_bytes(byte);
  if (missing_ == 0) return out + static_cast<char>(byte);
  if (missing_ < 0) {
    missing_ = 0;
    return out + kReplacement;
  }
  pending_ = static_cast<char>(byte);
  return out;
}

std::string ByteText::finish() {
  if (missing_ == 0) return "";
  missing_ = 0;
  pending_.clear();
  return kReplacement;
}

}  // namespace meshloom::control
