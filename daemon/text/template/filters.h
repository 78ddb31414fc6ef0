// SPDX-License-Identifier: Apache-2.0
// The filters of templates, by name: {{ value | name(arguments) }}.
#pragma once

#include <span>
#include <string_view>

#include "daemon/text/template/arguments.h"
#include "daemon/text/template/value.h"

namespace meshloom::text::chat {

struct Filter {
  std::string_view name;
  Value (*apply)(Work& work, const Value& input, const Arguments& arguments);
};

/// Returns null where there is none of the name here.
const Filter* find_filter(std::string_view name);
/// Tells whether Jinja has one of the name that this language has not.
bool is_filter_of_jinja(std::string_view name);

// --- The parts of the table.
std::span<const Filter> text_filters();
std::span<const Filter> number_filters();
std::span<const Filter> sequence_filters();
std::span<const Filter> order_filters();
std::span<const Filter> selection_filters();

/// A path gives the attribute "a.b.0" of a value, by the rules of templates; the value itself for
/// None.
class AttributePath {
 public:
  AttributePath(Work& work, const Value& path);
  /// `otherwise` stands for what is undefined, where it is not null.
  Value of(Work& work, const Value& value, const Value* otherwise = nullptr) const;

 private:
  Values parts_;
};

}  // namespace meshloom::text::chat
