// SPDX-License-Identifier: Apache-2.0
#include "daemon/text/template/arguments.h"

#include <algorithm>

#include "daemon/text/template/comparison.h"
#include "daemon/text/template/iteration.h"
#include "daemon/text/template/work.h"

namespace meshloom::text::chat {

int Arguments::depth() const {
  int depth = 0;
  for (const Value& value : positional) depth = std::max(depth, value.depth());
  for (const auto& [name, value] : named) depth = std::max(depth, value.depth());
  return depth;
}

Parameters::Parameters(Work& work, std::string_view callee, const Arguments& arguments,
                       std::initializer_list<std::string_view> names, std::size_t required)
    : work_(work), callee_(callee), names_(names), values_(names.size(), nullptr) {
  if (arguments.positional.size() > names_.size())
    work.fail("{}() takes at most {} arguments ({} given)", callee, names_.size(),
              arguments.positional.size());
  for (std::size_t i = 0; i < arguments.positional.size(); ++i)
    values_[i] = &arguments.positional[i];
  for (const auto& [name, value] : arguments.named) {
    const auto found = std::find(names_.begin(), names_.end(), name);
    if (found == names_.end())
      work.fail("{}() got an unexpected keyword argument '{}'", callee, name);
    const Value*& place = values_[static_cast<std::size_t>(found - names_.begin())];
    if (place != nullptr) work.fail("{}() got multiple values for argument '{}'", callee, name);
    place = &value;
  }
  for (std::size_t i = 0; i < required; ++i)
    if (values_[i] == nullptr)
      work.fail("{}() is missing the required argument '{}'", callee, names_[i]);
}

const Value* Parameters::some(std::size_t i) const {
  return values_[i] == nullptr || values_[i]->is_none() ? nullptr : values_[i];
}

bool Parameters::flag(std::size_t i, bool otherwise) const {
  return values_[i] == nullptr ? otherwise : truth(work_, *values_[i]);
}

std::int64_t Parameters::integer(std::size_t i, std::int64_t otherwise) const {
  return values_[i] == nullptr ? otherwise : integer(i);
}

std::int64_t Parameters::integer(std::size_t i) const {
  const std::optional<std::int64_t> value = values_[i]->integer();
  if (!value.has_value()) wrong_type(i, "an integer");
  return *value;
}

const std::string& Parameters::text(std::size_t i) const {
  const Text* text = values_[i]->text();
  if (text == nullptr) wrong_type(i, "a string");
  return text->bytes;
}

void Parameters::wrong_type(std::size_t i, const char* expected) const {
  refuse_undefined(work_, *values_[i]);
  work_.fail("{}(): the argument '{}' is of type '{}', expected {}", callee_, names_[i],
             values_[i]->type_name(), expected);
}

}  // namespace meshloom::text::chat
