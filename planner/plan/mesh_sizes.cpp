// SPDX-License-Identifier: Apache-2.0
#include "planner/plan/mesh_sizes.h"

#include <fmt/format.h>

namespace meshloom::planner {

std::string to_string(const MeshSizes& mesh) {
  std::string text;
  const auto add = [&](const char* name, int size) {
    if (size > 1) text += fmt::format("{}{}={}", text.empty() ? "" : ",", name, size);
  };
  add("dp", mesh.dp);
  add("fsdp", mesh.fsdp);
  add("cp", mesh.cp);
  add("tp", mesh.tp);
  return text.empty() ? "1 rank" : text;
}

MeshLayout mesh_layout(const MeshSizes& mesh) {
  return MeshLayout({{"dp", mesh.dp}, {"fsdp", mesh.fsdp}, {"cp", mesh.cp}, {"tp", mesh.tp}});
}

}  // namespace meshloom::planner
