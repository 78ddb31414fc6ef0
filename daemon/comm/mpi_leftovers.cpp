// SPDX-License-Identifier: Apache-2.0
#include "daemon/comm/mpi_leftovers.h"

#include "daemon/comm/mpi_transport.h"

namespace meshloom::comm {
namespace {

/// Whether the request has ended; it is null then.
bool ended(MPI_Request& request) {
  int done = 0;
  check_mpi(MPI_Test(&request, &done, MPI_STATUS_IGNORE), "MPI_Test");
  return done != 0;
}

}  // namespace

void MpiLeftovers::give_up(MPI_Request request, bool receive) {
  if (request == MPI_REQUEST_NULL) return;
  // Has no effect on a receive that was matched.
  if (receive) MPI_Cancel(&request);
  int done = 0;
  // This runs in destructors: an error leaves the request where it is.
  if (MPI_Test(&request, &done, MPI_STATUS_IGNORE) == MPI_SUCCESS && done != 0) return;
  (receive ? receives_ : sends_).push_back(request);
}

bool MpiLeftovers::receives_ended() {
  std::erase_if(receives_, ended);
  return receives_.empty();
}

void MpiLeftovers::forget_sends() {
  for (MPI_Request& request : sends_)
    if (!ended(request)) MPI_Request_free(&request);
  sends_.clear();
}

}  // namespace meshloom::comm
