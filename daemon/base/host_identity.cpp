// SPDX-License-Identifier: Apache-2.0
#include "daemon/base/host_identity.h"

#include <unistd.h>

#include <array>
#include <fstream>

namespace meshloom::base {

std::string host_name() {
  std::array<char, 256> name{};
  return ::gethostname(name.data(), name.size() - 1) == 0 ? name.data() : "unknown";
}

std::string boot_id() {
  std::ifstream file("/proc/sys/kernel/random/boot_id");
  std::string id;
  std::getline(file, id);
  return id.empty() ? "unknown" : id;
}

}  // namespace meshloom::base
