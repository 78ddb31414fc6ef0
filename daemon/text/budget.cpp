// SPDX-License-Identifier: Apache-2.0
#include "daemon/text/budget.h"

#include <algorithm>

#include "kernels/base/error.h"

namespace meshloom::text {

void Budget::allow_steps(std::size_t bytes) {
  given_ += bytes;
  left_ += kStepsOfByte * bytes;
}

void Budget::look(std::uint64_t steps, const char* part) {
  if (stop_) stop_();
  steps -= until_look_;
  until_look_ = 0;
  if (steps > left_)
    throw ResourceExhausted(
        fmt::format("{}: {} bytes take more than the {} steps that there are for them: a tokenizer "
                    "or a text that is made to take time without end",
                    part, given_, kSteps + kStepsOfByte * given_),
        "TOKENIZER_LIMIT", {{"part", part}, {"bytes", std::to_string(given_)}});
  left_ -= steps;
  until_look_ = std::min(kLook, left_);
  left_ -= until_look_;
}

void Budget::throw_bytes(std::uint64_t bytes, const char* part) const {
  const std::uint64_t given = (most_bytes_ - kBytes) / kBytesOfByte;
  throw ResourceExhausted(
      fmt::format("{}: {} bytes become more than {} bytes of text: a tokenizer or a text that is "
                  "made to take memory without end",
                  part, given, most_bytes_),
      "TOKENIZER_LIMIT",
      {{"part", part}, {"bytes", std::to_string(given)}, {"becomes", std::to_string(bytes)}});
}

}  // namespace meshloom::text
