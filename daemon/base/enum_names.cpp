// SPDX-License-Identifier: Apache-2.0
#include "daemon/base/enum_names.h"

#include <algorithm>
#include <cctype>

namespace meshloom::base {

std::string enum_spelling(const google::protobuf::EnumValueDescriptor& value) {
  std::string prefix;  // of JobState "JOB_STATE_"
  for (const char c : value.type()->name()) {
    if (std::isupper(static_cast<unsigned char>(c)) && !prefix.empty()) prefix += '_';
    prefix += static_cast<char>(std::toupper(static_cast<unsigned char>(c)));
  }
  prefix += '_';
  std::string spelling = value.name();
  if (spelling.rfind(prefix, 0) == 0) spelling.erase(0, prefix.size());
  std::transform(spelling.begin(), spelling.end(), spelling.begin(),
                 [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  return spelling;
}

const google::protobuf::EnumValueDescriptor* find_enum_value(
    const google::protobuf::EnumDescriptor& type, std::string_view spelling) {
  for (int i = 0; i < type.value_count(); ++i) {
    const auto* value = type.value(i);
    if (value->number() != 0 && enum_spelling(*value) == spelling) return value;
  }
  return nullptr;
}

std::vector<std::string> enum_choices(const google::protobuf::EnumDescriptor& type) {
  std::vector<std::string> choices;
  for (int i = 0; i < type.value_count(); ++i)
    if (type.value(i)->number() != 0) choices.push_back(enum_spelling(*type.value(i)));
  return choices;
}

}  // namespace meshloom::base
