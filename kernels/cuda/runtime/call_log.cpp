// SPDX-License-Identifier: Apache-2.0
#include "kernels/cuda/runtime/call_log.h"

#include <cxxabi.h>
#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <memory>
#include <string_view>

namespace meshloom::kernels::cuda {
namespace {

void remove_all(std::string& text, std::string_view part) {
  for (std::size_t at = text.find(part); at != std::string::npos; at = text.find(part, at))
    text.erase(at, part.size());
}

}  // namespace

std::string readable_name(const char* name) {
  if (!std::string_view(name).starts_with("_Z")) return name;
  int status = 0;
  const std::unique_ptr<char, decltype(&std::free)> plain(
      abi::__cxa_demangle(name, nullptr, nullptr, &status), &std::free);
  if (status != 0 || !plain) return name;
  std::string text = plain.get();
  remove_all(text, "(anonymous namespace)::");
  remove_all(text, "meshloom::kernels::cuda::");
  if (text.starts_with("void ")) text.erase(0, 5);
  return text.substr(0, text.find('('));
}

void CallLog::drop_until(std::uint64_t mark) { done_ = std::max(done_, std::min(mark, given_)); }

std::string CallLog::text() const {
  const std::uint64_t first = std::max(done_, given_ - std::min(given_, kNames));
  if (first == given_) return "no call";
  std::string text = first > done_ ? fmt::format("{} calls before, ", first - done_) : "";
  for (std::uint64_t at = first; at < given_;) {
    const char* const name = names_[at % kNames];
    std::uint64_t times = 0;
    for (; at < given_ && std::string_view(name) == names_[at % kNames]; ++at) ++times;
    text += readable_name(name);
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
