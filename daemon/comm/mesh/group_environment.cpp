// SPDX-License-Identifier: Apache-2.0
#include "daemon/comm/mesh/group_environment.h"

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

SymmetricOptions symmetric_from_environment(const EnvironmentLookup& environment) {
  SymmetricOptions options;
  const std::string text = environment("MESHLOOM_SYMMETRIC_MEMORY").value_or("auto");
  if (text == "fd_folder") {
    options.sharing = SharingMode::kFdFolder;
  } else if (text == "socket") {
    options.sharing = SharingMode::kSocket;
  } else if (text == "off") {
    options.sharing = SharingMode::kNone;
  } else {
    check(text.empty() || text == "auto",
          "MESHLOOM_SYMMETRIC_MEMORY is \"{}\", not auto, fd_folder, socket or off", text);
  }
  return options;
}

}  // namespace meshloom::comm
