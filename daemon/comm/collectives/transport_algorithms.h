// SPDX-License-Identifier: Apache-2.0
// Algorithms over a Transport: every collective as sends and receives between two ranks.
#pragma once

#include <memory>

#include "daemon/comm/flight/algorithms.h"
#include "daemon/comm/transport/transport.h"
#include "kernels/base/parallel_for.h"

namespace meshloom::comm {

/// Makes algorithms among all ranks of `transport`; `threads` are for local sums. Others may use
/// tags of the transport that it does not.
std::unique_ptr<Algorithms> make_transport_algorithms(std::shared_ptr<Transport> transport,
                                                      Threads threads);

}  // namespace meshloom::comm
