// SPDX-License-Identifier: Apache-2.0
#include "planner/attention/rotate.h"

#include <array>

namespace meshloom::planner {
namespace {

constexpr std::array kNames{"auto", "allgather", "alltoall", "pull", "ulysses"};

}  // namespace

const char* to_string(Rotate rotate) { return kNames[static_cast<std::size_t>(rotate)]; }

std::optional<Rotate> find_rotate(std::string_view name) {
  for (std::size_t i = 0; i < kNames.size(); ++i)
    if (name == kNames[i]) return static_cast<Rotate>(i);
  return std::nullopt;
}

}  // namespace meshloom::planner
