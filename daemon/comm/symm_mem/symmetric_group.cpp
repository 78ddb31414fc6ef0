// SPDX-License-Identifier: Apache-2.0
#include "daemon/comm/symm_mem/symmetric_group.h"

#include "daemon/comm/symm_mem/symmetric_errors.h"
#include "kernels/base/error.h"

namespace meshloom::comm {

void SymmetricGroup::check_enabled(const char* name) const {
  if (enabled()) return;
  throw FailedPrecondition(
      fmt::format("{} in group '{}': no symmetric memory: {}", name, group_.name(), why_not_),
      "SYMM_MEM_UNAVAILABLE");
}

void SymmetricGroup::check_signal(const char* name, int peer, int channel) const {
  check_enabled(name);
  check_rank(peer, size(), name);
  check_channel(channel, channels_, name);
}

}  // namespace meshloom::comm
