// SPDX-License-Identifier: Apache-2.0
#include "daemon/cli/help/unknown_field.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "daemon/base/familiar_keys.h"
#include "daemon/base/nearest_name.h"
#include "v1/job.pb.h"

namespace meshloom::cli {

CliError unknown_field(const std::string& where, const std::string& name,
                       const std::vector<std::string>& names) {
  std::string hint = base::familiar_key(name, *v1::JobSpec::descriptor());
  if (hint.empty())
    if (const std::string nearest = base::nearest_name(name, names); !nearest.empty())
      hint = fmt::format("did you mean \"{}\"?", nearest);
  return {kUsage, fmt::format("{}unknown field \"{}\"{} (valid here: {})",
                              where.empty() ? "" : where + ": ", name,
                              hint.empty() ? "" : "; " + hint, fmt::join(names, ", "))};
}

std::string field_hint(const command_line::UnknownOption& option) {
  const bool as_argument = option.path == "job edit";
  if (!as_argument && option.path != "job submit" && option.path != "job resume") return "";
  const std::string name = option.name.substr(option.name.find_first_not_of('-'));
  std::vector<std::string> written;
  for (std::string field : base::familiar_fields(name, *v1::JobSpec::descriptor())) {
    if (field.starts_with("run.")) field.erase(0, 4);
    written.push_back(fmt::format("{}{}={}", as_argument ? "" : "--set ", field,
                                  option.value.empty() ? "VALUE" : option.value));
  }
  if (written.empty()) return "";
  return fmt::format("a job's field is written {}", fmt::join(written, " or "));
}

}  // namespace meshloom::cli
