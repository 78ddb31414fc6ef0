// SPDX-License-Identifier: Apache-2.0
// CallLog: the names of what a thread gave its devices since it last waited for them.
#pragma once

#include <array>
#include <cstdint>
#include <string>

namespace meshloom::kernels::cuda {

/// A kernel's mangled name without namespaces, result and arguments: "copy_units<unsigned int>".
/// Other names stay as they are.
std::string readable_name(const char* name);

/// The device tells of a failure only when the host waits, so its error names what may have caused
/// it. Each thread has a log of its own.
class CallLog {
 public:
  /// How many names are kept.
  static constexpr std::uint64_t kNames = 16;

  /// `name` is never freed; a mangled one is shown readable.
  void add(const char* name) { names_[given_++ % kNames] = name; }
  /// How many calls there were so far: a mark for `drop_until`.
  std::uint64_t given() const { return given_; }
  /// Drops the calls before a mark: they are done.
  void drop_until(std::uint64_t mark);
  /// What is left, oldest first, equal neighbours once: "copy, softmax x 12, matmul"; or "no call".
  /// Says how many more there were.
  std::string text() const;

 private:
  std::array<const char*, kNames> names_{};
  std::uint64_t given_ = 0;
  std::uint64_t done_ = 0;
};

/// The log of the calling thread.
CallLog& call_log();

}  // namespace meshloom::kernels::cuda
