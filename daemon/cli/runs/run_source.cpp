// SPDX-License-Identifier: Apache-2.0
#include "daemon/cli/runs/run_source.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <fstream>

#include "daemon/base/config.h"
#include "daemon/base/job_fields.h"
#include "daemon/cli/exit_code.h"
#include "daemon/cli/jobs/field_setting.h"
#include "daemon/cli/jobs/job_source.h"
#include "daemon/cli/key_value.h"
#include "daemon/cli/standard_input.h"
#include "kernels/base/error.h"

namespace meshloom::cli {
namespace {

using google::protobuf::FieldDescriptor;

/// Whether the text is a job's file: its config is below `run`, that of a run below `config`.
bool is_job_file(const std::string& text) {
  const std::vector<std::string> keys = base::top_keys(text);
  const auto has = [&](const char* key) {
    return std::find(keys.begin(), keys.end(), key) != keys.end();
  };
  return has("run") && !has("config");
}

/// Clears a field, by its path below `message`. Returns whether it was given.
bool take_out(std::string_view path, google::protobuf::Message* message) {
  const auto dot = path.find('.');
  const std::string name(path.substr(0, dot));
  const FieldDescriptor* field = message->GetDescriptor()->FindFieldByName(name);
  check_internal(field != nullptr, "{} has no field {}", message->GetTypeName(), name);
  const google::protobuf::Reflection* reflection = message->GetReflection();
  if (field->is_repeated() ? reflection->FieldSize(*message, field) == 0
                           : !reflection->HasField(*message, field))
    return false;
  if (dot != std::string_view::npos)
    return take_out(path.substr(dot + 1), reflection->MutableMessage(message, field));
  reflection->ClearField(message, field);
  return true;
}

/// A field of RunSpec itself: "lease_seconds".
void set_own(const std::string& text, const std::string& field, const std::string& value,
             v1::RunSpec* spec) {
  v1::RunSpec given;
  try {
    base::read_yaml(field + ": " + value + "\n", text, &given);
  } catch (const Error& error) {
    std::string what = error.what();
    const std::string place = text + ":1: ";
    for (auto at = what.find(place); at != std::string::npos; at = what.find(place))
      what.replace(at, place.size(), text + ": ");
    throw CliError(kUsage, what);
  }
  spec->GetReflection()->ClearField(spec, v1::RunSpec::descriptor()->FindFieldByName(field));
  spec->MergeFrom(given);
}

}  // namespace

v1::RunSpec run_of_job(const v1::JobSpec& job, std::vector<std::string>* left_out) {
  v1::RunSpec spec;
  spec.set_name(job.name());
  spec.set_overcommit(job.overcommit());
  *spec.mutable_config() = job.run();
  left_out->clear();
  if (!job.labels().empty()) left_out->emplace_back("labels");
  if (job.step_limit() != 0) left_out->emplace_back("step_limit");
  if (job.time_limit_seconds() != 0) left_out->emplace_back("time_limit_seconds");
  for (const std::string_view field : base::kJobFields)
    if (take_out(field, spec.mutable_config())) left_out->emplace_back(field);
  return spec;
}

RunSource RunSource::read(const std::string& file) {
  RunSource source;
  source.file = file == "-" ? "standard input" : file;
  std::string text;
  if (file == "-") {
    text = read_standard_input(base::YamlLimits{}.bytes + 1);
  } else if (std::ifstream opened(file, std::ios::binary); opened) {
    // Only looked at for its keys; what cannot be read is told by the reader of YAML.
    text.resize(base::YamlLimits{}.bytes + 1);
    opened.read(text.data(), static_cast<std::streamsize>(text.size()));
    text.resize(static_cast<std::size_t>(opened.gcount()));
  }
  source.is_job = is_job_file(text);
  try {
    if (source.is_job) {
      base::JobFile job =
          file == "-" ? base::parse_job_file(text, source.file) : base::load_job_file(file);
      source.spec = run_of_job(job.spec, &source.left_out);
      source.lines = std::move(job.lines);
    } else {
      source.lines = file == "-" ? base::read_yaml(text, source.file, &source.spec)
                                 : base::read_yaml_file(file, &source.spec);
    }
  } catch (const Error& error) {
    throw CliError(kUsage, error.what());
  }
  return source;
}

void RunSource::set(const std::string& text) {
  auto [field, value] = split_key_value(text, "FIELD=VALUE, such as optimizer.lr=1e-4");
  const FieldDescriptor* own = v1::RunSpec::descriptor()->FindFieldByName(field);
  if (own && own->cpp_type() != FieldDescriptor::CPPTYPE_MESSAGE) {
    set_own(text, field, value, &spec);
    settings.push_back({text, field});
    return;
  }
  if (field.starts_with("config.")) field.erase(0, 7);
  FieldSetting setting = parse_setting(field + "=" + value);
  if (!setting.field.starts_with("run."))
    throw CliError(
        kUsage,
        fmt::format("{}: \"{}\" is a job's; a run has the sections of a job's `run` and "
                    "{}",
                    text, field, fmt::join(base::field_names(*v1::RunSpec::descriptor()), ", ")));
  v1::JobSpec job;
  *job.mutable_run() = spec.config();
  apply_setting(setting, &job);
  *spec.mutable_config() = job.run();
  settings.push_back({text, "config." + setting.field.substr(4)});
}

std::string RunSource::place_of(const v1::ErrorDetails& details) const {
  if (details.violations().empty()) return "";
  // The daemon's paths begin with "run." for what is below config and with "spec." for the rest.
  std::string field = details.violations(0).field();
  if (field.starts_with("run.")) field = "config." + field.substr(4);
  if (field.starts_with("spec.")) field = field.substr(5);
  for (auto setting = settings.rbegin(); setting != settings.rend(); ++setting)
    if (field == setting->field || field.starts_with(setting->field + "."))
      return setting->text + ": ";
  if (is_job && field.starts_with("config.")) field = "run." + field.substr(7);
  return place_in(file, lines, field);
}

}  // namespace meshloom::cli
