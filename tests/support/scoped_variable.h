// SPDX-License-Identifier: Apache-2.0
// A variable of the environment that a test changes.
#pragma once

#include <cstdlib>
#include <optional>
#include <string>

namespace meshloom::test {

/// At its end the variable is what it was at its begin.
class ScopedVariable {
 public:
  explicit ScopedVariable(const char* name) : name_(name) {
    if (const char* value = std::getenv(name)) before_ = value;
  }
  ScopedVariable(const char* name, const std::string& value) : ScopedVariable(name) { set(value); }
  ~ScopedVariable() {
    if (before_)
      set(*before_);
    else
      unset();
  }
  ScopedVariable(const ScopedVariable&) = delete;
  ScopedVariable& operator=(const ScopedVariable&) = delete;

  void set(const std::string& value) { ::setenv(name_, value.c_str(), 1); }
  void unset() { ::unsetenv(name_); }

 private:
  const char* name_;
  std::optional<std::string> before_;
};

}  // namespace meshloom::test
