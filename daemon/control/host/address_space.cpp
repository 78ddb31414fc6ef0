// SPDX-License-Identifier: Apache-2.0
#include "daemon/control/host/address_space.h"

#include <sys/resource.h>

#include "kernels/base/error.h"

namespace meshloom::control {

void check_address_space(std::uint64_t allowed) {
  if (allowed >= kLeastAddressSpace) return;
  throw ResourceExhausted(
      fmt::format("the limit on address space (ulimit -v, prlimit --as) is {} MiB, expected at "
                  "least {} MiB, which a daemon reserves without using it: raise it, and limit "
                  "memory by a cgroup",
                  allowed >> 20, kLeastAddressSpace >> 20),
      "ADDRESS_SPACE_LIMIT",
      {{"allowed_bytes", std::to_string(allowed)},
       {"least_bytes", std::to_string(kLeastAddressSpace)}});
}

void check_address_space() {
  rlimit limit{};
  check_internal(::getrlimit(RLIMIT_AS, &limit) == 0, "no limit of address space can be read");
  if (limit.rlim_cur != RLIM_INFINITY) check_address_space(limit.rlim_cur);
}

}  // namespace meshloom::control
