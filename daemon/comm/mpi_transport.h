// SPDX-License-Identifier: Apache-2.0
// Transport over MPI: nonblocking sends and receives on a communicator of its own.
#pragma once

#include <mpi.h>

#include <memory>

#include "daemon/comm/mpi_leftovers.h"
#include "daemon/comm/transport.h"

namespace meshloom::comm {

/// Throws CommError naming the call and MPI's text unless `code` is MPI_SUCCESS.
void check_mpi(int code, const char* call);

/// Duplicates `communicator`; every member calls it. What is cancelled goes to `leftovers`, which
/// all transports of a rank share.
std::unique_ptr<Transport> make_mpi_transport(MPI_Comm communicator,
                                              std::shared_ptr<MpiLeftovers> leftovers);

}  // namespace meshloom::comm
