// SPDX-License-Identifier: Apache-2.0
// The numeric fields of a message type and of all messages in it, found by reflection: for tests of
// what a 0 in each of them means.
#pragma once

#include <google/protobuf/descriptor.h>
#include <google/protobuf/message.h>

#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

namespace meshloom::test {

/// One field that is a number (lists of numbers and values of maps are none).
class NumericField {
 public:
  using Field = google::protobuf::FieldDescriptor;
  using Message = google::protobuf::Message;

  explicit NumericField(std::vector<const Field*> path) : path_(std::move(path)) {}

  /// Returns the path from the message down, without places in lists: "optimizer.groups.lr".
  std::string name() const {
    std::string name;
    for (const Field* field : path_) name += (name.empty() ? "" : ".") + field->name();
    return name;
  }
  std::string leaf() const { return path_.back()->name(); }
  /// Whether 0 can be told from nothing; else nothing is 0.
  bool has_presence() const { return path_.back()->has_presence(); }

  /// Makes what it is in where that is missing. Of a list the first entry is taken.
  void set_zero(Message* message) const {
    for (const Field* field : parents()) {
      const auto& r = *message->GetReflection();
      if (!field->is_repeated())
        message = r.MutableMessage(message, field);
      else if (r.FieldSize(*message, field) > 0)
        message = r.MutableRepeatedMessage(message, field, 0);
      else
        message = r.AddMessage(message, field);
    }
    const auto& r = *message->GetReflection();
    const Field* field = path_.back();
    switch (field->cpp_type()) {
      case Field::CPPTYPE_INT32: return r.SetInt32(message, field, 0);
      case Field::CPPTYPE_INT64: return r.SetInt64(message, field, 0);
      case Field::CPPTYPE_UINT32: return r.SetUInt32(message, field, 0);
      case Field::CPPTYPE_UINT64: return r.SetUInt64(message, field, 0);
      case Field::CPPTYPE_FLOAT: return r.SetFloat(message, field, 0);
      default: return r.SetDouble(message, field, 0);
    }
  }
  /// Nothing where it is not there.
  std::optional<double> value(const Message& given) const {
    const Message* message = &given;
    for (const Field* field : parents()) {
      const auto& r = *message->GetReflection();
      if (field->is_repeated() ? r.FieldSize(*message, field) == 0 : !r.HasField(*message, field))
        return std::nullopt;
      message = field->is_repeated() ? &r.GetRepeatedMessage(*message, field, 0)
                                     : &r.GetMessage(*message, field);
    }
    const auto& r = *message->GetReflection();
    const Field* field = path_.back();
    if (has_presence() && !r.HasField(*message, field)) return std::nullopt;
    switch (field->cpp_type()) {
      case Field::CPPTYPE_INT32: return r.GetInt32(*message, field);
      case Field::CPPTYPE_INT64: return static_cast<double>(r.GetInt64(*message, field));
      case Field::CPPTYPE_UINT32: return r.GetUInt32(*message, field);
      case Field::CPPTYPE_UINT64: return static_cast<double>(r.GetUInt64(*message, field));
      case Field::CPPTYPE_FLOAT: return r.GetFloat(*message, field);
      default: return r.GetDouble(*message, field);
    }
  }

 private:
  std::vector<const Field*> parents() const { return {path_.begin(), path_.end() - 1}; }

  std::vector<const Field*> path_;
};

/// `without`: message types whose fields are left out ("DataIdentity").
inline std::vector<NumericField> numeric_fields(const google::protobuf::Descriptor& type,
                                                const std::set<std::string>& without = {}) {
  using Field = google::protobuf::FieldDescriptor;
  std::vector<NumericField> found;
  std::vector<const Field*> path;
  const auto look = [&](const auto& self, const google::protobuf::Descriptor& in) -> void {
    for (int i = 0; i < in.field_count(); ++i) {
      const Field& field = *in.field(i);
      path.push_back(&field);
      const Field::CppType kind = field.cpp_type();
      const bool is_number = kind != Field::CPPTYPE_BOOL && kind != Field::CPPTYPE_ENUM &&
                             kind != Field::CPPTYPE_STRING && kind != Field::CPPTYPE_MESSAGE;
      if (is_number && !field.is_repeated()) found.emplace_back(path);
      if (kind == Field::CPPTYPE_MESSAGE && !field.is_map() &&
          !without.contains(field.message_type()->name()))
        self(self, *field.message_type());
      path.pop_back();
    }
  };
  look(look, type);
  return found;
}

}  // namespace meshloom::test
