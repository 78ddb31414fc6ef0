// SPDX-License-Identifier: Apache-2.0
// fields: what a config file may have, with its comments. Needs no daemon.
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <memory>
#include <nlohmann/json.hpp>

#include "daemon/cli/help/fields_command.h"
#include "daemon/cli/help/schema.h"
#include "daemon/cli/output/output.h"
#include "daemon/cli/output/terminal.h"

namespace meshloom::cli {
namespace {

struct FieldsOptions {
  std::string path;
  bool all = false;
};

/// Lines of at most `width` columns, each behind `indent`.
void print_wrapped(const std::string& text, const std::string& indent, std::size_t width) {
  std::string line;
  for (std::size_t begin = 0; begin < text.size();) {
    const std::size_t end = std::min(text.find(' ', begin), text.size());
    const std::string word = text.substr(begin, end - begin);
    if (!line.empty() && indent.size() + line.size() + 1 + word.size() > width) {
      fmt::print("{}{}\n", indent, line);
      line.clear();
    }
    line += (line.empty() ? "" : " ") + word;
    begin = end + 1;
  }
  if (!line.empty()) fmt::print("{}{}\n", indent, line);
}

void print_field(const SchemaField& field, const std::string& name, std::size_t width) {
  fmt::print("{}{}{}\n", name, field.type.empty() ? "" : ": ", field.type);
  print_wrapped(field.comment, "    ", width);
  for (const SchemaValue& value : field.values)
    if (!value.comment.empty())
      print_wrapped(fmt::format("{}: {}", value.name, value.comment), "    ", width);
}

nlohmann::ordered_json json_of(const SchemaField& field) {
  nlohmann::ordered_json json = {
      {"field", field.path}, {"type", field.type}, {"comment", field.comment}};
  for (const SchemaValue& value : field.values)
    json["values"].push_back({{"name", value.name}, {"comment", value.comment}});
  return json;
}

ExitCode show_fields(bool json, const FieldsOptions& options) {
  const SchemaEntry entry = find_schema(options.path);
  const std::vector<SchemaField> fields = options.all ? all_fields(options.path) : entry.fields;
  if (json) {
    nlohmann::ordered_json all = nlohmann::ordered_json::array();
    for (const SchemaField& field : fields) all.push_back(json_of(field));
    if (fields.empty()) all.push_back(json_of(entry.self));
    fmt::print("{}\n", nlohmann::ordered_json{{"fields", all}}.dump(2));
    return kOk;
  }
  const auto width = static_cast<std::size_t>(std::clamp(terminal_columns(STDOUT_FILENO), 40, 120));
  if (!entry.self.path.empty())
    print_field(entry.self, entry.self.path, width);
  else
    print_wrapped(entry.self.comment, "", width);
  for (const SchemaField& field : fields) {
    fmt::print("\n");
    const std::string last_name = field.path.substr(field.path.rfind('.') + 1);
    print_field(field, options.all ? field.path : last_name, width);
  }
  return kOk;
}

}  // namespace

void add_fields_command(CLI::App& app, CommandContext& context) {
  auto* command =
      app.add_subcommand("fields", "What job files and the daemon's config may have, and mean");
  auto options = std::make_shared<FieldsOptions>();
  command->add_option("field", options->path,
                      "Such as run.optimizer (or optimizer) of a job file, or daemon.uploads of "
                      "the daemon's --config; default: the whole job file");
  command->add_flag("--all", options->all, "All fields below it, to the last");
  command->footer(
      "Examples:\n  meshloom fields optimizer\n  meshloom fields training.max_norm\n"
      "  meshloom fields --all | grep lr");
  command->callback([&context, options] {
    context.action = [&context, options](Client&) { return show_fields(context.json, *options); };
  });
}

}  // namespace meshloom::cli
