// SPDX-License-Identifier: Apache-2.0
#include "daemon/base/yaml_reader.h"

#include <yaml-cpp/yaml.h>

#include <cerrno>
#include <fstream>
#include <set>
#include <sstream>
#include <vector>

#include "daemon/base/familiar_keys.h"
#include "daemon/base/nearest_name.h"
#include "daemon/base/system_message.h"
#include "daemon/base/yaml_problem.h"
#include "daemon/base/yaml_scalar.h"
#include "kernels/base/error.h"

namespace meshloom::base {
namespace {

using google::protobuf::Descriptor;
using google::protobuf::FieldDescriptor;
using google::protobuf::Message;

const char* kind_of(const YAML::Node& node) {
  switch (node.Type()) {
    case YAML::NodeType::Scalar: return "a single value";
    case YAML::NodeType::Sequence: return "a list";
    case YAML::NodeType::Map: return "a map of keys";
    default: return "nothing";
  }
}

int line_of(const YAML::Node& node) { return node.Mark().line + 1; }

class Reader {
 public:
  Reader(std::string file, const Descriptor& root, const YamlLimits& limits)
      : file_(std::move(file)), root_(root), limits_(limits) {}

  void read_message(const YAML::Node& node, const std::string& path, int depth, Message* message);
  SourceLines finish();

 private:
  void read_field(const YAML::Node& value, const std::string& path, int depth,
                  const FieldDescriptor& field, Message* message);
  void read_map(const YAML::Node& value, const std::string& path, int depth,
                const FieldDescriptor& field, Message* message);
  void read_list(const YAML::Node& value, const std::string& path, int depth,
                 const FieldDescriptor& field, Message* message);
  void read_one(const YAML::Node& value, const std::string& path, int depth,
                const FieldDescriptor& field, Message* message);
  void unknown_key(const YAML::Node& key, const std::string& path, const Descriptor& type);
  void problem(int line, const std::string& path, const std::string& what);
  bool count_node(const YAML::Node& node, const std::string& path, int depth);

  std::string file_;
  const Descriptor& root_;
  YamlLimits limits_;
  int nodes_ = 0;
  bool too_big_ = false;
  SourceLines lines_;
  std::vector<std::string> problems_;
};

void Reader::problem(int line, const std::string& path, const std::string& what) {
  constexpr std::size_t kMostProblems = 20;
  if (problems_.size() == kMostProblems) return;
  const std::string where = path.empty() ? "" : path + ": ";
  problems_.push_back(fmt::format("{}:{}: {}{}", file_, line, where, what));
}

bool Reader::count_node(const YAML::Node& node, const std::string& path, int depth) {
  if (too_big_) return false;
  if (depth > limits_.depth) {
    problem(line_of(node), path, fmt::format("nested deeper than {} levels", limits_.depth));
  } else if (++nodes_ > limits_.nodes) {
    too_big_ = true;
    problem(
        line_of(node), path,
        fmt::format("more than {} values, aliases counted each time they are used", limits_.nodes));
  } else {
    return true;
  }
  return false;
}

void Reader::unknown_key(const YAML::Node& key, const std::string& path, const Descriptor& type) {
  const auto names = field_names(type);
  std::string text = fmt::format("unknown key \"{}\"", shorten(key.Scalar()));
  if (key.Scalar() == "<<") text = "merge keys (<<) are not part of config files";
  if (const std::string familiar = familiar_key(key.Scalar(), root_); !familiar.empty())
    text += "; " + familiar;
  else if (const std::string nearest = nearest_name(key.Scalar(), names); !nearest.empty())
    text += fmt::format("; did you mean \"{}\"?", nearest);
  problem(line_of(key), path, fmt::format("{} (valid here: {})", text, fmt::join(names, ", ")));
}

void Reader::read_message(const YAML::Node& node, const std::string& path, int depth,
                          Message* message) {
  if (!count_node(node, path, depth)) return;
  if (!node.IsMap()) {
    problem(line_of(node), path, fmt::format("{}, expected a map of keys", kind_of(node)));
    return;
  }
  const Descriptor& type = *message->GetDescriptor();
  std::set<std::string> seen;
  for (const auto& entry : node) {
    if (!entry.first.IsScalar()) {
      problem(line_of(entry.first), path,
              fmt::format("a key is {}, expected a name", kind_of(entry.first)));
      continue;
    }
    const std::string& key = entry.first.Scalar();
    const FieldDescriptor* field = type.FindFieldByName(key);
    if (!field) {
      unknown_key(entry.first, path, type);
      continue;
    }
    const std::string field_path = path.empty() ? key : path + "." + key;
    if (!seen.insert(key).second) {
      problem(line_of(entry.first), field_path,
              fmt::format("given twice, first on line {}", lines_[field_path]));
      continue;
    }
    lines_[field_path] = line_of(entry.first);
    if (entry.second.IsNull()) {
      problem(line_of(entry.first), field_path, "has no value; leave the key out for the default");
      continue;
    }
    read_field(entry.second, field_path, depth + 1, *field, message);
  }
}

void Reader::read_field(const YAML::Node& value, const std::string& path, int depth,
                        const FieldDescriptor& field, Message* message) {
  if (field.is_map()) {
    read_map(value, path, depth, field, message);
  } else if (field.is_repeated()) {
    read_list(value, path, depth, field, message);
  } else {
    read_one(value, path, depth, field, message);
  }
}

/// Keys are texts, and any are taken.
void Reader::read_map(const YAML::Node& value, const std::string& path, int depth,
                      const FieldDescriptor& field, Message* message) {
  if (!count_node(value, path, depth)) return;
  if (!value.IsMap()) {
    problem(line_of(value), path, fmt::format("{}, expected a map of keys", kind_of(value)));
    return;
  }
  const FieldDescriptor& key_field = *field.message_type()->map_key();
  std::set<std::string> seen;
  for (const auto& item : value) {
    if (!item.first.IsScalar()) {
      problem(line_of(item.first), path,
              fmt::format("a key is {}, expected a name", kind_of(item.first)));
      continue;
    }
    const std::string& key = item.first.Scalar();
    const std::string item_path = path + "." + key;
    if (!seen.insert(key).second) {
      problem(line_of(item.first), item_path,
              fmt::format("given twice, first on line {}", lines_[item_path]));
      continue;
    }
    lines_[item_path] = line_of(item.first);
    Message* entry = message->GetReflection()->AddMessage(message, &field);
    entry->GetReflection()->SetString(entry, &key_field, key);
    read_one(item.second, item_path, depth + 1, *field.message_type()->map_value(), entry);
  }
}

void Reader::read_list(const YAML::Node& value, const std::string& path, int depth,
                       const FieldDescriptor& field, Message* message) {
  if (!count_node(value, path, depth)) return;
  if (!value.IsSequence()) {
    problem(line_of(value), path, fmt::format("{}, expected a list", kind_of(value)));
    return;
  }
  int index = 0;
  for (const auto& item : value) {
    const std::string item_path = fmt::format("{}[{}]", path, index++);
    lines_[item_path] = line_of(item);
    read_one(item, item_path, depth + 1, field, message);
  }
}

void Reader::read_one(const YAML::Node& value, const std::string& path, int depth,
                      const FieldDescriptor& field, Message* message) {
  const auto& reflection = *message->GetReflection();
  if (field.cpp_type() == FieldDescriptor::CPPTYPE_MESSAGE) {
    Message* child = field.is_repeated() ? reflection.AddMessage(message, &field)
                                         : reflection.MutableMessage(message, &field);
    read_message(value, path, depth, child);
    return;
  }
  if (!count_node(value, path, depth)) return;
  if (!value.IsScalar()) {
    problem(line_of(value), path,
            fmt::format("{}, expected {}", kind_of(value), expected_value(field)));
    return;
  }
  const std::string error = set_scalar({value.Scalar(), value.Tag() != "?"}, field, message);
  if (!error.empty()) problem(line_of(value), path, error);
}

SourceLines Reader::finish() {
  if (problems_.empty()) return std::move(lines_);
  throw InvalidArgument(fmt::format("{}", fmt::join(problems_, "\n")), "CONFIG_INVALID",
                        {{"file", file_}, {"problems", std::to_string(problems_.size())}});
}

/// The first line whose indentation has a tab, from 1; 0: none.
int line_with_tab(const std::string& text) {
  std::istringstream lines(text);
  int number = 0;
  for (std::string line; std::getline(lines, line);) {
    ++number;
    const auto begin = line.find_first_not_of(" \t");
    if (begin != std::string::npos && line.substr(0, begin).find('\t') != std::string::npos)
      return number;
  }
  return 0;
}

YAML::Node parse_document(const std::string& text, const std::string& name) {
  try {
    // yaml-cpp takes a quote that is never closed for closed where the text ends with a line end: a
    // comment behind that changes nothing else.
    auto documents = YAML::LoadAll(text.ends_with('\n') ? text + '#' : text);
    check(documents.size() <= 1, "{}: holds {} YAML documents, expected one", name,
          documents.size());
    return documents.empty() ? YAML::Node() : documents[0];
  } catch (const YAML::Exception& error) {
    if (const int tab = line_with_tab(text); tab > 0)
      throw InvalidArgument(
          fmt::format("{}:{}: begins with a tab; YAML is indented by spaces", name, tab),
          "CONFIG_INVALID", {{"file", name}});
    const int line = error.mark.is_null() ? 1 : error.mark.line + 1;
    throw InvalidArgument(fmt::format("{}:{}: not YAML: {}", name, line, yaml_problem(error, text)),
                          "CONFIG_INVALID", {{"file", name}});
  }
}

}  // namespace

std::vector<std::string> field_names(const Descriptor& type) {
  std::vector<std::string> names;
  for (int i = 0; i < type.field_count(); ++i) names.push_back(type.field(i)->name());
  return names;
}

SourceLines read_yaml(const std::string& text, const std::string& name, Message* message,
                      const YamlLimits& limits) {
  check(text.size() <= limits.bytes, "{}: {} bytes, expected a config of at most {}", name,
        text.size(), limits.bytes);
  check(text.find('\0') == std::string::npos, "{}: holds a NUL byte, so it is not a YAML file",
        name);
  const YAML::Node root = parse_document(text, name);
  check(root.IsDefined() && !root.IsNull(), "{}: is empty, expected {}", name,
        fmt::join(field_names(*message->GetDescriptor()), ", "));
  Reader reader(name, *message->GetDescriptor(), limits);
  reader.read_message(root, "", 0, message);
  return reader.finish();
}

SourceLines read_yaml_file(const std::filesystem::path& path, Message* message,
                           const YamlLimits& limits) {
  std::error_code status;
  if (std::filesystem::is_directory(path, status))
    throw InvalidArgument(fmt::format("{}: is a folder, expected a YAML file", path.string()));
  std::ifstream file(path, std::ios::binary);
  if (!file) {
    const int error = errno;
    const auto what = fmt::format("{}: cannot be read: {}", path.string(), system_message(error));
    if (error != ENOENT) throw IoError(what, "IO_ERROR", {{"file", path.string()}});
    throw NotFound(what, "FILE_NOT_FOUND", {{"file", path.string()}});
  }
  std::string text(limits.bytes + 1, '\0');
  file.read(text.data(), static_cast<std::streamsize>(text.size()));
  text.resize(static_cast<std::size_t>(file.gcount()));
  if (file.bad())
    throw IoError(fmt::format("{}: reading it failed", path.string()), "IO_ERROR",
                  {{"file", path.string()}});
  return read_yaml(text, path.string(), message, limits);
}

std::vector<std::string> top_keys(const std::string& text, const YamlLimits& limits) {
  std::vector<std::string> keys;
  if (text.size() > limits.bytes || text.find('\0') != std::string::npos) return keys;
  try {
    const YAML::Node root = parse_document(text, "");
    if (!root.IsMap()) return keys;
    for (const auto& entry : root)
      if (entry.first.IsScalar()) keys.push_back(entry.first.Scalar());
  } catch (const InvalidArgument&) {
    // The reader of the whole file tells what is wrong with it.
  }
  return keys;
}

}  // namespace meshloom::base
