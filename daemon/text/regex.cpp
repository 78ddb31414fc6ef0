// SPDX-License-Identifier: Apache-2.0
#include "daemon/text/regex.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include <algorithm>
#include <cstdint>
#include <ctime>
#include <exception>
#include <limits>

#include "daemon/base/utf8.h"
#include "daemon/text/utf8.h"
#include "kernels/base/error.h"

namespace meshloom::text {

struct CompiledPattern {
  explicit CompiledPattern(pcre2_code* owned) : code(owned) {}
  ~CompiledPattern() { pcre2_code_free(code); }
  CompiledPattern(const CompiledPattern&) = delete;
  CompiledPattern& operator=(const CompiledPattern&) = delete;

  pcre2_code* const code;
};

namespace {

// What one match may cost: steps back, for any text and for each of its bytes, and memory.
constexpr std::uint64_t kSteps = 10'000'000, kStepsOfByte = 16;
constexpr std::uint64_t kHeapKib = 64 << 10, kHeapBytesOfByte = 256;
constexpr std::size_t kJitStackStart = 32 << 10, kJitStackMost = 64 << 20;

/// Steps at each place of a search in code that counts nothing else, and of all its places. Where
/// nothing is found for long, many places are looked at with few steps.
constexpr std::size_t kQuickSteps = 256, kSearchSteps = 4096;
constexpr std::size_t kFewPlaces = kSearchSteps / kQuickSteps, kMostPlaces = 256;
/// Of the thread's time that is not counted otherwise, so much is a step: many times what one
/// takes, so that a slow machine refuses nothing that a fast one takes.
constexpr std::uint64_t kStepNanoseconds = 50;

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

std::string shown_expression(std::string_view expression) {
  return base::printable_text(expression, 80, false);
}

/// What a thread keeps for its matches: to make them anew for every piece of a text would cost more
/// than most matches. A call that is made inside another one's body may use them too, since nothing
/// in them lives from one match to the next but what each match sets.
class Matching {
 public:
  Matching() {
    if (stack_) pcre2_jit_stack_assign(context_.get(), nullptr, stack_.get());
  }

  pcre2_match_context* get() const { return context_.get(); }
  /// At places from the beginning of the search up to `last`.
  void set(std::uint32_t steps, std::uint32_t heap_kib, std::size_t last) {
    pcre2_set_match_limit(context_.get(), steps);
    pcre2_set_depth_limit(context_.get(), steps);
    pcre2_set_heap_limit(context_.get(), heap_kib);
    pcre2_set_offset_limit(context_.get(), last);
  }

 private:
  Owned<pcre2_jit_stack, pcre2_jit_stack_free> stack_{
      pcre2_jit_stack_create(kJitStackStart, kJitStackMost, nullptr)};
  Owned<pcre2_match_context, pcre2_match_context_free> context_{
      pcre2_match_context_create(nullptr)};
};

std::uint64_t nanoseconds(clockid_t clock) {
  timespec now{};
  ::clock_gettime(clock, &now);
  return static_cast<std::uint64_t>(now.tv_sec) * 1'000'000'000 +
         static_cast<std::uint64_t>(now.tv_nsec);
}

/// Pays for the thread's time, in a way that costs next to nothing where little time passes.
class TimeMeter {
 public:
  TimeMeter(Budget& budget, const char* part) : budget_(budget), part_(part) {}

  void look() {
    const std::uint64_t now = nanoseconds(CLOCK_MONOTONIC_COARSE);
    if (now == looked_) return;
    looked_ = now;
    const std::uint64_t used = nanoseconds(CLOCK_THREAD_CPUTIME_ID);
    if (used_ > 0) budget_.spend((used - used_) / kStepNanoseconds, part_);
    used_ = used;
  }

 private:
  Budget& budget_;
  const char* part_;
  std::uint64_t looked_ = nanoseconds(CLOCK_MONOTONIC_COARSE);
  std::uint64_t used_ = 0;  ///< 0: not known yet
};

/// What the counting code calls between parts of the expression.
struct Counting {
  Budget& budget;
  const char* part;
  std::size_t place = 0;
  std::exception_ptr error = {};

  static int count(pcre2_callout_block* block, void* data) {
    auto& self = *static_cast<Counting*>(data);
    const std::size_t at = block->current_position;
    const std::size_t passed = at > self.place ? at - self.place : self.place - at;
    self.place = at;
    try {
      self.budget.spend(1 + passed, self.part);
    } catch (...) {
      self.error = std::current_exception();  // which must not pass through C
      return PCRE2_ERROR_CALLOUT;
    }
    return 0;
  }
};

std::shared_ptr<const CompiledPattern> compiled(const std::string& pattern, std::uint32_t more,
                                                std::string_view expression) {
  const Owned<pcre2_compile_context, pcre2_compile_context_free> context(
      pcre2_compile_context_create(nullptr));
  pcre2_set_newline(context.get(), PCRE2_NEWLINE_LF);
  int error = 0;
  PCRE2_SIZE place = 0;
  // In Oniguruma's syntax ^ and $ are at every line. Start optimizations would look through all of
  // the text, again for each search at a few places.
  pcre2_code* const code =
      pcre2_compile(units(pattern), pattern.size(),
                    PCRE2_UTF | PCRE2_MULTILINE | PCRE2_NO_UTF_CHECK | PCRE2_USE_OFFSET_LIMIT |
                        PCRE2_NO_START_OPTIMIZE | more,
                    &error, &place, context.get());
  if (code == nullptr && error == PCRE2_ERROR_PATTERN_TOO_LARGE)
    throw ResourceExhausted(fmt::format("the regular expression \"{}\": {}",
                                        shown_expression(expression), message_of(error)),
                            "TOKENIZER_LIMIT", {{"expression", shown_expression(expression)}});
  check(code != nullptr, "the regular expression \"{}\": {}", shown_expression(expression),
        message_of(error));
  // Where the machine allows no JIT the interpreter finds the same matches.
  const auto pattern_code = std::make_shared<const CompiledPattern>(code);
  pcre2_jit_compile(code, PCRE2_JIT_COMPLETE);
  return pattern_code;
}

}  // namespace

Regex::Regex(std::string_view expression) : expression_(expression) {
  const std::string pattern = to_pcre2(expression);
  quick_ = compiled(pattern, 0, expression);
  counting_ = compiled(pattern, PCRE2_AUTO_CALLOUT, expression);
}

void Regex::for_each_match(std::string_view text,
                           const std::function<void(std::size_t begin, std::size_t end)>& body,
                           Budget& budget, const char* part) const {
  thread_local Matching matching;
  const auto steps = static_cast<std::uint32_t>(std::min<std::uint64_t>(
      kSteps + kStepsOfByte * text.size(), std::numeric_limits<std::uint32_t>::max()));
  const auto heap_kib = static_cast<std::uint32_t>(std::min<std::uint64_t>(
      kHeapKib + kHeapBytesOfByte * text.size() / 1024, std::uint64_t{1} << 20));
  // Both have the same groups.
  const Owned<pcre2_match_data, pcre2_match_data_free> data(
      pcre2_match_data_create_from_pattern(quick_->code, nullptr));
  TimeMeter meter(budget, part);

  const auto quick_match = [&](std::size_t from, std::size_t last) {
    const std::size_t quick = std::min(kQuickSteps, kSearchSteps / (last - from + 1));
    matching.set(static_cast<std::uint32_t>(quick), heap_kib, last);
    const int found = pcre2_match(quick_->code, units(text), text.size(), from, PCRE2_NO_UTF_CHECK,
                                  data.get(), matching.get());
    meter.look();
    return found;
  };
  const auto counted_match = [&](std::size_t place) {
    matching.set(steps, heap_kib, place);
    Counting counting{budget, part, place};
    pcre2_set_callout(matching.get(), Counting::count, &counting);
    const int found = pcre2_match(counting_->code, units(text), text.size(), place,
                                  PCRE2_NO_UTF_CHECK, data.get(), matching.get());
    pcre2_set_callout(matching.get(), nullptr, nullptr);
    if (counting.error) std::rethrow_exception(counting.error);
    return found;
  };

  std::size_t from = 0;
  std::size_t last_end = std::string_view::npos;
  std::size_t places = 1;  // that are looked at together
  while (from <= text.size()) {
    const std::size_t last = std::min(from + places - 1, text.size());
    int found = quick_match(from, last);
    const bool is_too_much = found == PCRE2_ERROR_MATCHLIMIT || found == PCRE2_ERROR_DEPTHLIMIT;
    if (is_too_much && last > from) {
      places = places > kFewPlaces ? kFewPlaces : 1;
      continue;
    }
    if (is_too_much) found = counted_match(from);
    if (found == PCRE2_ERROR_NOMATCH) {
      budget.spend(last - from + 1, part);
      from = last + 1;
      while (from < text.size() && base::utf8_continues(text[from])) ++from;
      places = is_too_much ? 1 : std::min(2 * places, kMostPlaces);
      continue;
    }
    if (found < 0)
      throw ResourceExhausted(
          fmt::format("{}: the regular expression \"{}\" cannot be matched at byte {} of {}: {}",
                      part, shown_expression(expression_), from, text.size(), message_of(found)),
          "TOKENIZER_LIMIT", {{"part", part}, {"expression", shown_expression(expression_)}});
    const PCRE2_SIZE* const ends = pcre2_get_ovector_pointer(data.get());
    const std::size_t begin = ends[0], end = ends[1];
    budget.spend(1 + end - std::min(from, begin), part);
    if (begin != end || begin != last_end) body(begin, end);
    last_end = from = end;
    if (begin == end) {
      if (end == text.size()) return;
      from += utf8_length(text[end]);
    }
  }
}

}  // namespace meshloom::text
