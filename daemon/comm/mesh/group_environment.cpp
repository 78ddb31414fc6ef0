// SPDX-License-Identifier: Apache-2.0
#include "daemon/comm/mesh/group_environment.h"

#include <string>
#include <utility>
#include <vector>

#include "kernels/base/error.h"

namespace meshloom::comm {
namespace {

/// What the variable names of the choices; `automatic` if it is not set, empty or "auto".
template <typename Choice>
Choice choice_from(const EnvironmentLookup& environment, const char* variable, Choice automatic,
                   const std::vector<std::pair<std::string, Choice>>& choices) {
  const std::string text = environment(variable).value_or("auto");
  std::string names = "auto";
  for (const auto& [name, choice] : choices) {
    if (text == name) return choice;
    names += (name == choices.back().first ? " or " : ", ") + name;
  }
  check(text.empty() || text == "auto", "{} is \"{}\", not {}", variable, text, names);
  return automatic;
}

}  // namespace

HierarchyOptions hierarchy_from_environment(const EnvironmentLookup& environment) {
  HierarchyOptions options;
  options.choice = choice_from(environment, "MESHLOOM_HIERARCHY", options.choice,
                               {{"leaders", HierarchyChoice::kLeaders},
                                {"striped", HierarchyChoice::kStriped},
                                {"off", HierarchyChoice::kMessages}});
  return options;
}

SymmetricOptions symmetric_from_environment(const EnvironmentLookup& environment) {
  SymmetricOptions options;
  options.sharing = choice_from(environment, "MESHLOOM_SYMMETRIC_MEMORY", options.sharing,
                                {{"fd_folder", SharingMode::kFdFolder},
                                 {"socket", SharingMode::kSocket},
                                 {"off", SharingMode::kNone}});
  return options;
}

}  // namespace meshloom::comm
