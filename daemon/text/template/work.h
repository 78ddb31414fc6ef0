// SPDX-License-Identifier: Apache-2.0
// Work: one rendering of a template: what it may take, where it is, and the errors that say so.
#pragma once

#include <fmt/format.h>

#include <cstdint>
#include <string>
#include <utility>

#include "daemon/text/budget.h"

namespace meshloom::text::chat {

class Work {
 public:
  /// `origin` names the template in errors, `now` is what strftime_now tells.
  Work(Budget& budget, const std::string& origin, std::int64_t now)
      : budget_(budget), origin_(origin), now_(now) {}

  Budget& budget() { return budget_; }
  std::int64_t now() const { return now_; }
  /// Errors name this line, which is that of the part that runs.
  int line = 1;

  /// Pays for steps.
  void spend(std::uint64_t steps) { budget_.spend(steps, kPart); }
  /// Pays for bytes that are copied or looked at one behind the other.
  void spend_bytes(std::uint64_t bytes) { spend(1 + bytes / 16); }
  /// Throws where so many more bytes than are held now would be too many.
  void check_bytes(std::uint64_t bytes) { budget_.check_bytes(bytes, kPart); }

  /// Refuses what Python refuses, too: throws InvalidArgument (TEMPLATE_ERROR).
  template <typename... Args>
  [[noreturn]] void fail(fmt::format_string<Args...> format, Args&&... args) const {
    throw_error(fmt::format(format, std::forward<Args>(args)...));
  }
  /// Refuses what Python has and this language has not: throws Unimplemented (NOT_OFFERED).
  template <typename... Args>
  [[noreturn]] void not_offered(fmt::format_string<Args...> format, Args&&... args) const {
    throw_not_offered(fmt::format(format, std::forward<Args>(args)...));
  }
  /// Throws ResourceExhausted (TOKENIZER_LIMIT).
  template <typename... Args>
  [[noreturn]] void too_large(fmt::format_string<Args...> format, Args&&... args) const {
    throw_too_large(fmt::format(format, std::forward<Args>(args)...));
  }
  /// Throws InvalidArgument (TEMPLATE_RAISED) with the message of the template.
  [[noreturn]] void raise(const std::string& message) const;

  /// Level is one more level of the template's own nesting (macros that call macros), while it
  /// lives.
  class Level {
   public:
    explicit Level(Work& work) : work_(work) {
      if (++work.depth_ > kMostDepth) [[unlikely]] {
        --work.depth_;
        work.too_large("more than {} parts of the template run inside each other", kMostDepth);
      }
    }
    ~Level() { --work_.depth_; }
    Level(const Level&) = delete;
    Level& operator=(const Level&) = delete;

   private:
    Work& work_;
  };

  /// While it lives, `text` is what statements write to. The text that they wrote to before is
  /// held, since nothing else accounts for it until it becomes a value.
  class Writing {
   public:
    Writing(Work& work, const std::string& text)
        : work_(work),
          outer_(work.written_),
          hold_(work.budget_, outer_ == nullptr ? 0 : outer_->size(), kPart) {
      work.written_ = &text;
    }
    ~Writing() { work_.written_ = outer_; }
    Writing(const Writing&) = delete;
    Writing& operator=(const Writing&) = delete;

   private:
    Work& work_;
    const std::string* const outer_;
    const Budget::Hold hold_;
  };

  /// A level takes less than 1 KiB of the stack.
  static constexpr int kMostDepth = 1000;

 private:
  static constexpr const char* kPart = "chat template";

  std::string place() const;
  [[noreturn]] void throw_error(const std::string& what) const;
  [[noreturn]] void throw_not_offered(const std::string& what) const;
  [[noreturn]] void throw_too_large(const std::string& what) const;

  Budget& budget_;
  const std::string& origin_;
  const std::int64_t now_;
  int depth_ = 0;
  const std::string* written_ = nullptr;  ///< null before anything is written
};

}  // namespace meshloom::text::chat
