// SPDX-License-Identifier: Apache-2.0
#include "daemon/cli/jobs/field_setting.h"

#include <fmt/format.h>

#include "daemon/base/yaml_reader.h"
#include "daemon/cli/exit_code.h"
#include "daemon/cli/help/unknown_field.h"
#include "daemon/cli/key_value.h"
#include "kernels/base/error.h"

namespace meshloom::cli {
namespace {

using google::protobuf::FieldDescriptor;
using google::protobuf::Message;

/// With "run." in front where it was left out.
std::string whole_path(const std::string& text, const std::string& field) {
  const std::string first = field.substr(0, field.find('.'));
  if (v1::JobSpec::descriptor()->FindFieldByName(first)) return field;
  if (v1::RunConfig::descriptor()->FindFieldByName(first)) return "run." + field;
  std::vector<std::string> names = base::field_names(*v1::RunConfig::descriptor());
  for (std::string& name : base::field_names(*v1::JobSpec::descriptor()))
    names.push_back(std::move(name));
  throw unknown_field(text, first, names);
}

/// Leaves out the lines of a file, since a setting is in none.
std::string without_lines(std::string text, const std::string& name, int lines) {
  for (int line = 1; line <= lines; ++line) {
    const std::string place = fmt::format("{}:{}: ", name, line);
    for (auto at = text.find(place); at != std::string::npos; at = text.find(place, at))
      text.replace(at, place.size(), name + ": ");
  }
  return text;
}

FieldSetting make_setting(const std::string& text, const std::string& field,
                          const std::string& value) {
  constexpr const char* kCharacters =
      "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_./-";
  if (field.find_first_not_of(kCharacters) != std::string::npos ||
      value.find('\n') != std::string::npos)
    throw CliError(kUsage, fmt::format("\"{}\" is no FIELD=VALUE on one line", text));
  FieldSetting setting{text, whole_path(text, field), {}};
  const std::string& path = setting.field;
  // The value below its keys, each on a line of its own.
  std::string yaml, indent;
  int lines = 0;
  for (std::size_t begin = 0; begin <= path.size();) {
    const std::size_t end = std::min(path.find('.', begin), path.size());
    yaml +=
        fmt::format("{}{}{}:", yaml.empty() ? "" : "\n", indent, path.substr(begin, end - begin));
    indent += "  ";
    begin = end + 1;
    ++lines;
  }
  yaml += " " + value + "\n";
  try {
    base::read_yaml(yaml, text, &setting.value);
  } catch (const Error& error) {
    throw CliError(kUsage, without_lines(error.what(), text, lines));
  }
  return setting;
}

}  // namespace

FieldSetting parse_setting(const std::string& text) {
  const auto given = split_key_value(text, "FIELD=VALUE, such as training.steps=200");
  return make_setting(text, given.first, given.second);
}

std::vector<FieldSetting> parse_sweep(const std::string& text) {
  const auto given = split_key_value(text, "FIELD=VALUE,VALUE..., such as optimizer.lr=1e-4,3e-4");
  const std::string& field = given.first;
  std::vector<FieldSetting> settings;
  int depth = 0;
  char quote = 0;
  std::string value;
  const auto end_value = [&] {
    settings.push_back(make_setting(field + "=" + value, field, value));
    value.clear();
  };
  for (const char c : given.second) {
    if (quote != 0)
      quote = c == quote ? '\0' : quote;
    else if (c == '"' || c == '\'')
      quote = c;
    else if (c == '[' || c == '{')
      ++depth;
    else if (c == ']' || c == '}')
      --depth;
    if (c == ',' && depth == 0 && quote == 0)
      end_value();
    else
      value += c;
  }
  end_value();
  if (settings.size() < 2)
    throw CliError(kUsage, fmt::format("{}: one value is no sweep; use --set", text));
  return settings;
}

void apply_setting(const FieldSetting& setting, v1::JobSpec* spec) {
  Message* message = spec;
  for (std::size_t begin = 0; message && begin <= setting.field.size();) {
    const std::size_t end = std::min(setting.field.find('.', begin), setting.field.size());
    const FieldDescriptor* field =
        message->GetDescriptor()->FindFieldByName(setting.field.substr(begin, end - begin));
    const auto& reflection = *message->GetReflection();
    const bool last = end == setting.field.size();
    if (field && last) reflection.ClearField(message, field);
    const bool goes_on =
        field && !last && field->cpp_type() == FieldDescriptor::CPPTYPE_MESSAGE && !field->is_map();
    message = goes_on ? reflection.MutableMessage(message, field) : nullptr;
    begin = end + 1;
  }
  spec->MergeFrom(setting.value);
}

}  // namespace meshloom::cli
