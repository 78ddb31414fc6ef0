// SPDX-License-Identifier: Apache-2.0
#include "daemon/control/jobs/byte_text.h"

#include "daemon/base/utf8.h"

namespace meshloom::control {
namespace {

constexpr const char* kReplacement = "\xEF\xBF\xBD";

}  // namespace

std::string ByteText::append(unsigned char byte) {
  std::string out;
  if (missing_ > 0) {
    const bool continues =
        base::utf8_continues(static_cast<char>(byte)) &&
        (pending_.size() > 1 ||
         base::utf8_second_byte_fits(static_cast<unsigned char>(pending_[0]), byte));
    if (continues) {
      pending_ += static_cast<char>(byte);
      if (--missing_ > 0) return "";
      out.swap(pending_);
      return out;
    }
    out = finish();
  }
  missing_ = base::utf8_continuation_bytes(byte);
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
