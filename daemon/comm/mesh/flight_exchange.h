// SPDX-License-Identifier: Apache-2.0
// How ranks under a launcher come to read each other's flight logs.
#pragma once

#include <memory>

#include "daemon/comm/bootstrap/bootstrap.h"
#include "daemon/comm/diagnosis/flight_field.h"
#include "daemon/comm/symm_mem/symmetric_memory.h"

namespace meshloom::comm {

/// Every rank of the world calls it. A rank's log lies in symmetric memory of its own, which its
/// peers on the host map; in private memory where it has none. Logs of ranks that cannot be
/// reached, such as those of other hosts, are not there, and say why. Throws what the bootstrap
/// throws.
std::shared_ptr<const FlightField> share_flight_logs(Bootstrap& bootstrap, SymmetricMemory& memory);

}  // namespace meshloom::comm
