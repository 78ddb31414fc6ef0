// SPDX-License-Identifier: Apache-2.0
// What the runner prints and writes.
#pragma once

#include <filesystem>
#include <optional>

#include "tests/conformance/runner.h"

namespace meshloom::conformance {

/// Used by rank 0 alone.
class Report {
 public:
  /// `out`: folder for NAME.out.json and NAME.out.safetensors of every case that ran.
  explicit Report(std::optional<std::filesystem::path> out) : out_(std::move(out)) {}

  /// Prints a case's line and writes its files.
  void add(const Outcome& outcome);
  /// Prints "N passed, N failed, N skipped".
  void print_totals() const;
  /// Writes all cases with status, message and seconds.
  void write(const std::filesystem::path& file) const;

 private:
  void write_outputs(const Outcome& outcome) const;

  std::optional<std::filesystem::path> out_;
  int passed_ = 0, failed_ = 0, skipped_ = 0;
  Json cases_ = Json::array();
};

}  // namespace meshloom::conformance
