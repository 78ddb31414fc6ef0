// SPDX-License-Identifier: Apache-2.0
#include "daemon/base/message_printer.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <cmath>
#include <nlohmann/json.hpp>

#include "daemon/base/enum_names.h"

namespace meshloom::base {
namespace {

using google::protobuf::FieldDescriptor;
using google::protobuf::Message;
using Json = nlohmann::ordered_json;

constexpr int kSingle = -1;

/// Index kSingle: the field's only value.
Json scalar_value(const Message& message, const FieldDescriptor& field, int index) {
  const auto& r = *message.GetReflection();
  const bool one = index == kSingle;
  switch (field.cpp_type()) {
    case FieldDescriptor::CPPTYPE_INT32:
      return one ? r.GetInt32(message, &field) : r.GetRepeatedInt32(message, &field, index);
    case FieldDescriptor::CPPTYPE_INT64:
      return one ? r.GetInt64(message, &field) : r.GetRepeatedInt64(message, &field, index);
    case FieldDescriptor::CPPTYPE_UINT32:
      return one ? r.GetUInt32(message, &field) : r.GetRepeatedUInt32(message, &field, index);
    case FieldDescriptor::CPPTYPE_UINT64:
      return one ? r.GetUInt64(message, &field) : r.GetRepeatedUInt64(message, &field, index);
    case FieldDescriptor::CPPTYPE_FLOAT:
      return one ? r.GetFloat(message, &field) : r.GetRepeatedFloat(message, &field, index);
    case FieldDescriptor::CPPTYPE_DOUBLE:
      return one ? r.GetDouble(message, &field) : r.GetRepeatedDouble(message, &field, index);
    case FieldDescriptor::CPPTYPE_BOOL:
      return one ? r.GetBool(message, &field) : r.GetRepeatedBool(message, &field, index);
    case FieldDescriptor::CPPTYPE_ENUM:
      return enum_spelling(one ? *r.GetEnum(message, &field)
                               : *r.GetRepeatedEnum(message, &field, index));
    case FieldDescriptor::CPPTYPE_STRING:
      return one ? r.GetString(message, &field) : r.GetRepeatedString(message, &field, index);
    case FieldDescriptor::CPPTYPE_MESSAGE: break;
  }
  return nullptr;
}

Json value_of(const Message& message, const FieldDescriptor& field, int index) {
  const auto& r = *message.GetReflection();
  if (field.cpp_type() == FieldDescriptor::CPPTYPE_MESSAGE)
    return to_json(index == kSingle ? r.GetMessage(message, &field)
                                    : r.GetRepeatedMessage(message, &field, index));
  if (field.type() == FieldDescriptor::TYPE_BYTES) return nullptr;
  Json value = scalar_value(message, field, index);
  if (value.is_number_float() && !std::isfinite(value.get<double>())) return nullptr;
  return value;
}

/// The name of a field in JSON: as in config files, unless the schema gives it another.
const std::string& key_of(const FieldDescriptor& field) {
  return field.has_json_name() ? field.json_name() : field.name();
}

/// A map field: its entries are messages of key and value.
Json map_of(const Message& message, const FieldDescriptor& field) {
  Json map = Json::object();
  const auto& r = *message.GetReflection();
  for (int i = 0; i < r.FieldSize(message, &field); ++i) {
    const Json entry = to_json(r.GetRepeatedMessage(message, &field, i));
    map[entry["key"].is_string() ? entry["key"].get<std::string>() : entry["key"].dump()] =
        entry["value"];
  }
  return map;
}

/// True if YAML reads the text as itself without quotes.
bool is_plain(const std::string& text) {
  if (text.empty() || text == "true" || text == "false" || text == "null") return false;
  if (!std::isalpha(static_cast<unsigned char>(text[0]))) return false;
  return std::all_of(text.begin(), text.end(), [](unsigned char c) {
    return std::isalnum(c) || c == '_' || c == '-' || c == '.' || c == '/';
  });
}

/// Strings that need quotes, numbers and lists are spelled alike in JSON and YAML.
std::string yaml_scalar(const Json& value) {
  if (value.is_string() && is_plain(value.get<std::string>())) return value.get<std::string>();
  return value.dump(-1, ' ', false, Json::error_handler_t::replace);
}

void write_yaml(const Json& value, int indent, std::string* out) {
  for (const auto& [key, item] : value.items()) {
    if (item.is_object()) {
      if (item.empty()) {
        *out += fmt::format("{:{}}{}: {{}}\n", "", indent, key);
        continue;
      }
      *out += fmt::format("{:{}}{}:\n", "", indent, key);
      write_yaml(item, indent + 2, out);
    } else {
      *out += fmt::format("{:{}}{}: {}\n", "", indent, key, yaml_scalar(item));
    }
  }
}

/// Only what is set, so that reading it back gives the same message.
Json set_fields(const Message& message) {
  Json object = Json::object();
  const auto& r = *message.GetReflection();
  std::vector<const FieldDescriptor*> fields;
  r.ListFields(message, &fields);
  for (const auto* field : fields) {
    if (field->is_map()) {
      object[field->name()] = map_of(message, *field);
    } else if (field->is_repeated()) {
      Json list = Json::array();
      for (int i = 0; i < r.FieldSize(message, field); ++i)
        list.push_back(value_of(message, *field, i));
      object[field->name()] = std::move(list);
    } else if (field->cpp_type() == FieldDescriptor::CPPTYPE_MESSAGE) {
      object[field->name()] = set_fields(r.GetMessage(message, field));
    } else {
      object[field->name()] = value_of(message, *field, kSingle);
    }
  }
  return object;
}

}  // namespace

Json to_json(const Message& message) {
  Json object = Json::object();
  const auto& r = *message.GetReflection();
  const auto& type = *message.GetDescriptor();
  for (int i = 0; i < type.field_count(); ++i) {
    const auto& field = *type.field(i);
    if (field.is_map()) {
      object[key_of(field)] = map_of(message, field);
    } else if (field.is_repeated()) {
      Json list = Json::array();
      for (int k = 0; k < r.FieldSize(message, &field); ++k)
        list.push_back(value_of(message, field, k));
      object[key_of(field)] = std::move(list);
    } else if (field.cpp_type() == FieldDescriptor::CPPTYPE_ENUM &&
               r.GetEnum(message, &field)->number() == 0) {
      continue;  // nobody has set it: its zero is no value, and nothing reads it
    } else if (!field.has_presence() || r.HasField(message, &field)) {
      object[key_of(field)] = value_of(message, field, kSingle);
    }
  }
  return object;
}

std::string to_yaml(const Message& message) {
  std::string out;
  write_yaml(set_fields(message), 0, &out);
  return out;
}

}  // namespace meshloom::base
