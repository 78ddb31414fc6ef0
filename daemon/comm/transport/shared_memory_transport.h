// SPDX-License-Identifier: Apache-2.0
// Transport between ranks of one host over rings in shared memory: ranks that are threads, or
// forked processes.
#pragma once

#include <memory>

#include "daemon/comm/transport/ring_endpoint.h"
#include "daemon/comm/transport/transport.h"

namespace meshloom::comm {

/// All ranks of the endpoint's field, seen from its rank. Groups of some ranks come by split.
std::unique_ptr<Transport> make_shared_memory_transport(std::shared_ptr<RingEndpoint> endpoint);

}  // namespace meshloom::comm
