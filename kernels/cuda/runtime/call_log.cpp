// SPDX-License-Identifier: Apache-2.0
#include "kernels/cuda/runtime/call_log.h"

#include <fmt/format.h>

#include <algorithm>
#include <string_view>

namespace meshloom::kernels::cuda {

void CallLog::drop_until(std::uint64_t mark) { done_ = std::max(done_, std::min(mark, given_)); }

std::string CallLog::text() const {
  const std::uint64_t first = std::max(done_, given_ - std::min(given_, kNames));
  if (first == given_) return "no call";
  std::string text = first > done_ ? fmt::format("{} calls before, ", first - done_) : "";
  for (std::uint64_t at = first; at < given_;) {
    const std::string_view name = names_[at % kNames];
    std::uint64_t times = 0;
    for (; at < given_ && name == names_[at % kNames]; ++at) ++times;
    text += name;
    if (times > 1) text += fmt::format(" x {}", times);
    if (at < given_) text += ", ";
  }
  return text;
}

CallLog& call_log() {
  thread_local CallLog log;
  return log;
}

}  // namespace meshloom::kernels::cuda
