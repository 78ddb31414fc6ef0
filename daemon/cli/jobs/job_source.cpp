// SPDX-License-Identifier: Apache-2.0
#include "daemon/cli/jobs/job_source.h"

#include <fmt/format.h>

#include "daemon/base/config.h"
#include "daemon/cli/exit_code.h"
#include "daemon/cli/plans/plan_options.h"
#include "daemon/cli/standard_input.h"
#include "kernels/base/error.h"

namespace meshloom::cli {
namespace {

bool is_below(const std::string& field, const std::string& parent) {
  return field == parent || field.rfind(parent + ".", 0) == 0;
}

}  // namespace

std::string place_in(const std::string& file, const base::SourceLines& lines, std::string field) {
  while (!field.empty()) {
    const auto line = lines.find(field);
    if (line != lines.end()) return fmt::format("{}:{}: ", file, line->second);
    const auto cut = field.find_last_of(".[");
    field = cut == std::string::npos ? "" : field.substr(0, cut);
  }
  return file.empty() ? "" : file + ": ";
}

JobSource JobSource::read(const std::string& file) {
  try {
    const bool from_stdin = file == "-";
    const std::string name = from_stdin ? "standard input" : file;
    base::JobFile read =
        from_stdin ? base::parse_job_file(read_standard_input(base::YamlLimits{}.bytes + 1), name)
                   : base::load_job_file(file);
    return {std::move(read.spec), name, std::move(read.lines), "", {}, {}};
  } catch (const Error& error) {
    throw CliError(kUsage, error.what());
  }
}

void JobSource::use_plan(const std::string& path) {
  plan_file = path;
  v1::PlanFile given = read_plan_file(path, &plan_lines);
  v1::RunConfig& run = *spec.mutable_run();
  if (given.plan().dtype().empty()) given.mutable_plan()->set_dtype(run.plan().dtype());
  *run.mutable_mesh() = given.mesh();
  *run.mutable_plan() = given.plan();
}

void JobSource::set(const FieldSetting& setting) {
  apply_setting(setting, &spec);
  settings.push_back(setting);
}

std::string JobSource::place_of(const std::string& field) const {
  for (auto setting = settings.rbegin(); setting != settings.rend(); ++setting)
    if (is_below(field, setting->field)) return setting->text + ": ";
  const bool of_plan =
      !plan_file.empty() && (is_below(field, "run.mesh") || is_below(field, "run.plan"));
  const bool kept_dtype = field == "run.plan.dtype" && !plan_lines.contains("plan.dtype");
  if (!of_plan || kept_dtype) return place_in(file, lines, field);
  return place_in(plan_file, plan_lines, field.substr(field.find('.') + 1));
}

}  // namespace meshloom::cli
