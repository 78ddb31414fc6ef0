// SPDX-License-Identifier: Apache-2.0
// The arguments of a call, and reading them by the names of the parameters.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "daemon/text/template/value.h"

namespace meshloom::text::chat {

struct Arguments {
  Values positional;
  std::vector<std::pair<std::string, Value>> named;

  bool empty() const { return positional.empty() && named.empty(); }
  /// Returns how many levels of values the deepest of them has.
  int depth() const;
};

/// Parameters gives arguments by the parameters of what is called.
class Parameters {
 public:
  /// `names` in order; at most so many are given, the first `required` of them always. `callee` is
  /// for errors. Throws for arguments that have no parameter or two of one.
  Parameters(Work& work, std::string_view callee, const Arguments& arguments,
             std::initializer_list<std::string_view> names, std::size_t required = 0);

  /// Returns null where it was not given.
  const Value* at(std::size_t i) const { return values_[i]; }
  /// Returns null also where it is None.
  const Value* some(std::size_t i) const;

  // --- The value, or what stands for it where it was not given. Throws for another type.
  bool flag(std::size_t i, bool otherwise) const;
  std::int64_t integer(std::size_t i, std::int64_t otherwise) const;
  std::int64_t integer(std::size_t i) const;
  const std::string& text(std::size_t i) const;

 private:
  [[noreturn]] void wrong_type(std::size_t i, const char* expected) const;

  Work& work_;
  const std::string_view callee_;
  std::vector<std::string_view> names_;
  std::vector<const Value*> values_;
};

}  // namespace meshloom::text::chat
