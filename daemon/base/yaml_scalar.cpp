// SPDX-License-Identifier: Apache-2.0
#include "daemon/base/yaml_scalar.h"

#include <fmt/ranges.h>

#include <charconv>
#include <cmath>
#include <type_traits>

#include "daemon/base/enum_names.h"
#include "daemon/base/nearest_name.h"

namespace meshloom::base {
namespace {

using google::protobuf::FieldDescriptor;
using google::protobuf::Message;
using google::protobuf::Reflection;

std::string describe(const YamlScalar& scalar) {
  return scalar.quoted ? fmt::format("the text \"{}\"", shorten(scalar.text))
                       : shorten(scalar.text);
}

std::string wrong(const YamlScalar& scalar, const FieldDescriptor& field) {
  return fmt::format("{}, expected {}", describe(scalar), expected_value(field));
}

template <typename T>
std::string set_number(const YamlScalar& scalar, const FieldDescriptor& field, Message* message,
                       void (Reflection::*set)(Message*, const FieldDescriptor*, T) const,
                       void (Reflection::*add)(Message*, const FieldDescriptor*, T) const) {
  T value{};
  const char* end = scalar.text.data() + scalar.text.size();
  const auto [rest, error] = std::from_chars(scalar.text.data(), end, value);
  bool fits = !scalar.quoted && error == std::errc() && rest == end;
  if constexpr (std::is_floating_point_v<T>) fits = fits && std::isfinite(value);
  if (!fits) return wrong(scalar, field);
  (message->GetReflection()->*(field.is_repeated() ? add : set))(message, &field, value);
  return "";
}

std::string set_bool(const YamlScalar& scalar, const FieldDescriptor& field, Message* message) {
  const bool value = scalar.text == "true";
  if (scalar.quoted || (!value && scalar.text != "false")) return wrong(scalar, field);
  const auto& reflection = *message->GetReflection();
  field.is_repeated() ? reflection.AddBool(message, &field, value)
                      : reflection.SetBool(message, &field, value);
  return "";
}

std::string set_enum(const YamlScalar& scalar, const FieldDescriptor& field, Message* message) {
  const auto* value = find_enum_value(*field.enum_type(), scalar.text);
  if (!value) {
    const std::string nearest = nearest_name(scalar.text, enum_choices(*field.enum_type()));
    const std::string hint = nearest.empty() ? "" : fmt::format("; did you mean {}?", nearest);
    return wrong(scalar, field) + hint;
  }
  const auto& reflection = *message->GetReflection();
  field.is_repeated() ? reflection.AddEnum(message, &field, value)
                      : reflection.SetEnum(message, &field, value);
  return "";
}

}  // namespace

std::string shorten(const std::string& text) {
  constexpr std::size_t kMost = 60;
  std::string shown = text.substr(0, kMost);
  for (char& c : shown)
    if (static_cast<unsigned char>(c) < 0x20) c = ' ';
  return text.size() > kMost ? shown + "..." : shown;
}

std::string expected_value(const FieldDescriptor& field) {
  switch (field.cpp_type()) {
    case FieldDescriptor::CPPTYPE_INT32: return "a whole number of at most 32 bits";
    case FieldDescriptor::CPPTYPE_INT64: return "a whole number";
    case FieldDescriptor::CPPTYPE_UINT32:
    case FieldDescriptor::CPPTYPE_UINT64: return "a whole number, not negative";
    case FieldDescriptor::CPPTYPE_FLOAT:
    case FieldDescriptor::CPPTYPE_DOUBLE: return "a finite number";
    case FieldDescriptor::CPPTYPE_BOOL: return "true or false";
    case FieldDescriptor::CPPTYPE_ENUM:
      return fmt::format("one of {}", fmt::join(enum_choices(*field.enum_type()), ", "));
    case FieldDescriptor::CPPTYPE_STRING: return "text";
    case FieldDescriptor::CPPTYPE_MESSAGE: return "a map of keys";
  }
  return "a value";
}

std::string set_scalar(const YamlScalar& scalar, const FieldDescriptor& field, Message* message) {
  const auto& reflection = *message->GetReflection();
  switch (field.cpp_type()) {
    case FieldDescriptor::CPPTYPE_INT32:
      return set_number<std::int32_t>(scalar, field, message, &Reflection::SetInt32,
                                      &Reflection::AddInt32);
    case FieldDescriptor::CPPTYPE_INT64:
      return set_number<std::int64_t>(scalar, field, message, &Reflection::SetInt64,
                                      &Reflection::AddInt64);
    case FieldDescriptor::CPPTYPE_UINT32:
      return set_number<std::uint32_t>(scalar, field, message, &Reflection::SetUInt32,
                                       &Reflection::AddUInt32);
    case FieldDescriptor::CPPTYPE_UINT64:
      return set_number<std::uint64_t>(scalar, field, message, &Reflection::SetUInt64,
                                       &Reflection::AddUInt64);
    case FieldDescriptor::CPPTYPE_FLOAT:
      return set_number<float>(scalar, field, message, &Reflection::SetFloat,
                               &Reflection::AddFloat);
    case FieldDescriptor::CPPTYPE_DOUBLE:
      return set_number<double>(scalar, field, message, &Reflection::SetDouble,
                                &Reflection::AddDouble);
    case FieldDescriptor::CPPTYPE_BOOL: return set_bool(scalar, field, message);
    case FieldDescriptor::CPPTYPE_ENUM: return set_enum(scalar, field, message);
    case FieldDescriptor::CPPTYPE_STRING:
      field.is_repeated() ? reflection.AddString(message, &field, scalar.text)
                          : reflection.SetString(message, &field, scalar.text);
      return "";
    case FieldDescriptor::CPPTYPE_MESSAGE: break;
  }
  return "is not a single value";
}

}  // namespace meshloom::base
