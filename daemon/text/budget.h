// SPDX-License-Identifier: Apache-2.0
// Budget: what the work on one text, or on the files of one tokenizer, may take.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <utility>

namespace meshloom::text {

/// It is asked every few milliseconds by whoever works on a text: what it throws (Cancelled,
/// DeadlineExceeded, Unavailable) ends the work. Empty: nothing ends it but the budget.
using StopCheck = std::function<void()>;

/// The files of a tokenizer come from strangers, and so may the text. Both may be such that a few
/// of their bytes make work or text without end, so that everything that is done for them is paid
/// for here: steps (about a byte that one part looks at, or a look-up) and bytes of text that are
/// held at once. There are so many of both for each byte that was given, which is many times what
/// a tokenizer of any use takes. Used by one thread at a time.
class Budget {
 public:
  explicit Budget(StopCheck stop = {}) : stop_(std::move(stop)) {}
  /// Makes a budget for the work on `bytes` of text.
  static Budget of_text(std::size_t bytes, StopCheck stop = {}) {
    Budget budget(std::move(stop));
    budget.allow(bytes);
    return budget;
  }

  /// Says that more was given, which may be paid for.
  void allow(std::size_t bytes) {
    allow_steps(bytes);
    allow_bytes(bytes);
  }
  /// Each does one of the two parts of allow(), for what is worked on several times: each time
  /// takes steps, but no more text is held at once than the first time.
  void allow_steps(std::size_t bytes);
  void allow_bytes(std::size_t bytes) { most_bytes_ += kBytesOfByte * bytes; }

  /// Pays for steps before or after they are done. `part` says in errors whose they are. Throws
  /// ResourceExhausted (TOKENIZER_LIMIT) if there are no more, and what the stop check throws.
  void spend(std::uint64_t steps, const char* part) {
    if (steps < until_look_) [[likely]]
      until_look_ -= steps;
    else
      look(steps, part);
  }

  /// Throws ResourceExhausted (TOKENIZER_LIMIT) where so many more bytes than are held now would
  /// be too many.
  void check_bytes(std::uint64_t more, const char* part) const {
    if (held_ + more > most_bytes_) [[unlikely]]
      throw_bytes(held_ + more, part);
  }

  /// Hold counts bytes that are held as long as it lives.
  class Hold {
   public:
    Hold(Budget& budget, std::uint64_t bytes, const char* part) : budget_(budget), bytes_(bytes) {
      budget.check_bytes(bytes, part);
      budget.held_ += bytes;
    }
    ~Hold() { budget_.held_ -= bytes_; }
    Hold(const Hold&) = delete;
    Hold& operator=(const Hold&) = delete;

   private:
    Budget& budget_;
    const std::uint64_t bytes_;
  };

  // This much there is for nothing, and for each byte that was given.
  static constexpr std::uint64_t kSteps = 20'000'000, kStepsOfByte = 128;
  static constexpr std::uint64_t kBytes = std::uint64_t{1} << 20, kBytesOfByte = 32;

 private:
  /// Steps after which the stop check is asked.
  static constexpr std::uint64_t kLook = std::uint64_t{1} << 18;

  void look(std::uint64_t steps, const char* part);
  [[noreturn]] void throw_bytes(std::uint64_t bytes, const char* part) const;

  StopCheck stop_;
  std::uint64_t given_ = 0;           ///< bytes, for steps
  std::uint64_t until_look_ = kLook;  ///< steps that are paid for without a look
  std::uint64_t left_ = kSteps - kLook;
  std::uint64_t held_ = 0, most_bytes_ = kBytes;
};

}  // namespace meshloom::text
