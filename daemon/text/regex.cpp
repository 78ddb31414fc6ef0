// SPDX-License-Identifier: Apache-2.0
#include "daemon/text/regex.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include <algorithm>
#include <cstdint>
#include <limits>

#include "daemon/base/utf8.h"
#include "daemon/text/utf8.h"
#include "kernels/base/error.h"

namespace meshloom::text {
namespace {

// What one match may cost: steps back, for any text and for each of its bytes, and memory. A class
// that repeats takes a step for each character.
constexpr std::uint64_t kSteps = 10'000'000, kStepsOfByte = 16;
constexpr std::uint32_t kHeapKib = 1 << 20;
constexpr std::size_t kJitStackStart = 32 << 10, kJitStackMost = 64 << 20;

template <auto Free>
struct Deleter {
  template <typename T>
  void operator()(T* object) const {
    Free(object);
  }
};
template <typename T, auto Free>
using Owned = std::unique_ptr<T, Deleter<Free>>;

std::string message_of(int error) {
  PCRE2_UCHAR text[256] = {};
  pcre2_get_error_message(error, text, sizeof(text));
  return reinterpret_cast<const char*>(text);
}

PCRE2_SPTR units(std::string_view text) { return reinterpret_cast<PCRE2_SPTR>(text.data()); }

std::string shown(std::string_view expression) {
  return base::printable_text(expression, 80, false);
}

/// What a thread keeps for its matches: to make them anew for every piece of a text would cost more
/// than most matches. A call that is made inside another one's body may use them too, since nothing
/// in them lives from one match to the next but the limits, which each match sets.
class Matching {
 public:
  Matching() {
    pcre2_set_heap_limit(context_.get(), kHeapKib);
    if (stack_) pcre2_jit_stack_assign(context_.get(), nullptr, stack_.get());
  }

  pcre2_match_context* limited_to(std::uint32_t steps) {
    pcre2_set_match_limit(context_.get(), steps);
    pcre2_set_depth_limit(context_.get(), steps);
    return context_.get();
  }

 private:
  Owned<pcre2_jit_stack, pcre2_jit_stack_free> stack_{
      pcre2_jit_stack_create(kJitStackStart, kJitStackMost, nullptr)};
  Owned<pcre2_match_context, pcre2_match_context_free> context_{
      pcre2_match_context_create(nullptr)};
};

}  // namespace

Regex::Regex(std::string_view expression) : expression_(expression) {
  const std::string pattern = to_pcre2(expression);
  const Owned<pcre2_compile_context, pcre2_compile_context_free> context(
      pcre2_compile_context_create(nullptr));
  pcre2_set_newline(context.get(), PCRE2_NEWLINE_LF);
  int error = 0;
  PCRE2_SIZE place = 0;
  // In Oniguruma's syntax ^ and $ are at every line.
  pcre2_code* const code = pcre2_compile(units(pattern), pattern.size(),
                                         PCRE2_UTF | PCRE2_MULTILINE | PCRE2_NO_UTF_CHECK, &error,
                                         &place, context.get());
  check(code != nullptr, "the regular expression \"{}\": {}", shown(expression), message_of(error));
  code_ = std::shared_ptr<pcre2_code>(code, pcre2_code_free);
  // Where the machine allows no JIT the interpreter finds the same matches.
  pcre2_jit_compile(code, PCRE2_JIT_COMPLETE);
}

void Regex::for_each_match(
    std::string_view text,
    const std::function<void(std::size_t begin, std::size_t end)>& body) const {
  const auto* const code = static_cast<const pcre2_code*>(code_.get());
  thread_local Matching matching;
  const auto limit = static_cast<std::uint32_t>(std::min<std::uint64_t>(
      kSteps + kStepsOfByte * text.size(), std::numeric_limits<std::uint32_t>::max()));
  const Owned<pcre2_match_data, pcre2_match_data_free> data(
      pcre2_match_data_create_from_pattern(code, nullptr));

  std::size_t from = 0;
  std::size_t last_end = std::string_view::npos;
  while (from <= text.size()) {
    const int found = pcre2_match(code, units(text), text.size(), from, PCRE2_NO_UTF_CHECK,
                                  data.get(), matching.limited_to(limit));
    if (found == PCRE2_ERROR_NOMATCH) return;
    if (found < 0)
      throw ResourceExhausted(
          fmt::format("the regular expression \"{}\" cannot be matched at byte {} of {}: {}",
                      shown(expression_), from, text.size(), message_of(found)));
    const PCRE2_SIZE* const ends = pcre2_get_ovector_pointer(data.get());
    const std::size_t begin = ends[0], end = ends[1];
    if (begin != end || begin != last_end) body(begin, end);
    last_end = from = end;
    if (begin == end) {
      if (end == text.size()) return;
      from += utf8_length(text[end]);
    }
  }
}

}  // namespace meshloom::text
