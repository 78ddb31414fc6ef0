// SPDX-License-Identifier: Apache-2.0
#include "daemon/cli/help/schema.h"

#include <fmt/ranges.h>
#include <google/protobuf/descriptor.h>
#include <google/protobuf/descriptor.pb.h>

#include <memory>

#include "daemon/base/enum_names.h"
#include "daemon/base/yaml_reader.h"
#include "daemon/cli/exit_code.h"
#include "daemon/cli/help/schema_descriptors.h"
#include "daemon/cli/help/unknown_field.h"
#include "kernels/base/error.h"

namespace meshloom::cli {
namespace {

using google::protobuf::Descriptor;
using google::protobuf::DescriptorPool;
using google::protobuf::EnumValueDescriptor;
using google::protobuf::FieldDescriptor;

constexpr const char* kDaemon = "daemon";

/// The descriptors that are compiled into messages have no comments: these have.
const DescriptorPool& pool() {
  static const std::unique_ptr<DescriptorPool> made = [] {
    google::protobuf::FileDescriptorSet files;
    const std::string_view bytes = schema_descriptors();
    check_internal(files.ParseFromArray(bytes.data(), static_cast<int>(bytes.size())),
                   "schema: the compiled-in descriptors cannot be read");
    auto filled = std::make_unique<DescriptorPool>();
    for (const auto& file : files.file())
      check_internal(filled->BuildFile(file) != nullptr, "schema: {} cannot be built", file.name());
    return filled;
  }();
  return *made;
}

const Descriptor& message_type(const char* name) {
  const Descriptor* type = pool().FindMessageTypeByName(std::string("meshloom.v1.") + name);
  check_internal(type != nullptr, "schema: there is no message {}", name);
  return *type;
}

/// Words of a comment, line ends and the space behind "//" taken off.
void append_words(const std::string& comment, std::string* text) {
  for (std::size_t begin = 0; begin < comment.size();) {
    const std::size_t end = std::min(comment.find_first_of(" \n", begin), comment.size());
    if (end > begin) *text += (text->empty() ? "" : " ") + comment.substr(begin, end - begin);
    begin = end + 1;
  }
}

template <typename Described>
std::string comment_of(const Described& item) {
  google::protobuf::SourceLocation place;
  std::string text;
  if (!item.GetSourceLocation(&place)) return text;
  append_words(place.leading_comments, &text);
  append_words(place.trailing_comments, &text);
  return text;
}

std::string scalar_type(const FieldDescriptor& field) {
  switch (field.cpp_type()) {
    case FieldDescriptor::CPPTYPE_BOOL: return "true | false";
    case FieldDescriptor::CPPTYPE_STRING: return "text";
    case FieldDescriptor::CPPTYPE_DOUBLE:
    case FieldDescriptor::CPPTYPE_FLOAT: return "number";
    case FieldDescriptor::CPPTYPE_MESSAGE: return "fields";
    case FieldDescriptor::CPPTYPE_ENUM:
      return fmt::format("{}", fmt::join(base::enum_choices(*field.enum_type()), " | "));
    default: return "integer";
  }
}

std::string type_of(const FieldDescriptor& field) {
  if (field.is_map()) return "map of keys to " + scalar_type(*field.message_type()->map_value());
  const std::string one = scalar_type(field);
  return field.is_repeated() ? "list of " + one : one;
}

bool has_fields(const FieldDescriptor& field) {
  return field.cpp_type() == FieldDescriptor::CPPTYPE_MESSAGE && !field.is_map();
}

SchemaField describe(const FieldDescriptor& field, const std::string& path) {
  SchemaField described{path, type_of(field), comment_of(field), {}, has_fields(field)};
  if (described.has_fields && described.comment.empty())
    described.comment = comment_of(*field.message_type());
  if (field.cpp_type() != FieldDescriptor::CPPTYPE_ENUM) return described;
  for (int i = 0; i < field.enum_type()->value_count(); ++i) {
    const EnumValueDescriptor& value = *field.enum_type()->value(i);
    // The zero value is what a file cannot write: its comment is the default.
    const std::string comment = comment_of(value);
    if (value.number() != 0)
      described.values.push_back({base::enum_spelling(value), comment});
    else if (!comment.empty())
      described.comment += (described.comment.empty() ? "" : " ") + ("default: " + comment);
  }
  return described;
}

std::string below(const std::string& path, const FieldDescriptor* parent, const std::string& name) {
  const char* item = parent && parent->is_repeated() ? "[]" : "";
  return path.empty() ? name : fmt::format("{}{}.{}", path, item, name);
}

/// A place in the schema: the message that has the fields, and the field that it is the type of.
struct Place {
  const Descriptor* type = nullptr;  ///< null at a field without fields
  const FieldDescriptor* field = nullptr;
  std::string path;
};

void step_into(const std::string& name, Place* place) {
  const FieldDescriptor* field = place->type ? place->type->FindFieldByName(name) : nullptr;
  if (!place->type)
    throw CliError(kUsage,
                   fmt::format("{}: has no fields, so no \"{}\" either", place->path, name));
  if (!field) throw unknown_field(place->path, name, base::field_names(*place->type));
  place->path = below(place->path, place->field, name);
  place->field = field;
  place->type = has_fields(*field) ? field->message_type() : nullptr;
}

/// The file that a path begins in, and its first name where it is left out or stands for the file.
Place root_of(const std::string& first, bool* taken) {
  *taken = first == kDaemon;
  if (*taken) return {&message_type("DaemonConfig"), nullptr, kDaemon};
  Place job{&message_type("JobSpec"), nullptr, ""};
  if (first.empty() || job.type->FindFieldByName(first)) return job;
  const Descriptor& run = message_type("RunConfig");
  if (run.FindFieldByName(first)) {
    step_into("run", &job);
    return job;
  }
  std::vector<std::string> names = base::field_names(run);
  for (std::string& name : base::field_names(*job.type)) names.push_back(std::move(name));
  names.emplace_back(kDaemon);
  throw unknown_field("", first, names);
}

Place find(const std::string& path) {
  bool taken = false;
  Place place = root_of(path.substr(0, path.find('.')), &taken);
  for (std::size_t begin = 0; begin < path.size();) {
    const std::size_t end = std::min(path.find('.', begin), path.size());
    std::string name = path.substr(begin, end - begin);
    if (name.ends_with("[]")) name.resize(name.size() - 2);
    if (!(begin == 0 && taken)) step_into(name, &place);
    begin = end + 1;
  }
  return place;
}

void add_leaves(const Place& place, std::vector<SchemaField>* leaves) {
  for (int i = 0; i < place.type->field_count(); ++i) {
    Place next = place;
    step_into(place.type->field(i)->name(), &next);
    if (next.type)
      add_leaves(next, leaves);
    else
      leaves->push_back(describe(*next.field, next.path));
  }
}

}  // namespace

SchemaEntry find_schema(const std::string& path) {
  const Place place = find(path);
  SchemaEntry entry;
  if (place.field)
    entry.self = describe(*place.field, place.path);
  else
    entry.self = {place.path, "", comment_of(*place.type), {}, true};
  if (place.type) {
    for (int i = 0; i < place.type->field_count(); ++i) {
      const FieldDescriptor& field = *place.type->field(i);
      entry.fields.push_back(describe(field, below(place.path, place.field, field.name())));
    }
  }
  return entry;
}

std::vector<SchemaField> all_fields(const std::string& path) {
  const Place place = find(path);
  std::vector<SchemaField> leaves;
  if (place.type)
    add_leaves(place, &leaves);
  else
    leaves.push_back(describe(*place.field, place.path));
  return leaves;
}

}  // namespace meshloom::cli
