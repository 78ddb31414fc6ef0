// SPDX-License-Identifier: Apache-2.0
#include "daemon/comm/mesh/hierarchy_environment.h"

#include "kernels/base/error.h"

namespace meshloom::comm {

HierarchyOptions hierarchy_from_environment(const EnvironmentLookup& environment) {
  HierarchyOptions options;
  const std::string text = environment("MESHLOOM_HIERARCHY").value_or("auto");
  if (text == "leaders") {
    options.choice = HierarchyChoice::kLeaders;
  } else if (text == "striped") {
    options.choice = HierarchyChoice::kStriped;
  } else if (text == "off") {
    options.choice = HierarchyChoice::kMessages;
  } else {
    check(text.empty() || text == "auto",
          "MESHLOOM_HIERARCHY is \"{}\", not auto, leaders, striped or off", text);
  }
  return options;
}

}  // namespace meshloom::comm
