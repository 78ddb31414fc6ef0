// SPDX-License-Identifier: Apache-2.0
#include "daemon/comm/transport/mpi_leftovers.h"

#include <utility>

namespace meshloom::comm {
namespace {

/// Whether the request has ended, well or not: a message that was too long for its receive ends it
/// with an error, and the request has to be freed.
bool ended(MPI_Request& request) {
  int done = 0;
  if (MPI_Test(&request, &done, MPI_STATUS_IGNORE) == MPI_SUCCESS) return done != 0;
  if (request != MPI_REQUEST_NULL) MPI_Request_free(&request);
  return true;
}

}  // namespace

MpiLeftovers::~MpiLeftovers() {
  keep_for_ever(receives_);
  keep_for_ever(sends_);
}

void MpiLeftovers::keep_for_ever(std::vector<Leftover>& leftovers) {
  // On purpose without an owner.
  if (!leftovers.empty()) new std::vector<Leftover>(std::exchange(leftovers, {}));
}

void MpiLeftovers::give_up(MPI_Request request, bool receive, std::shared_ptr<void> memory) {
  if (request == MPI_REQUEST_NULL) return;
  // Has no effect on a receive that was matched.
  if (receive) MPI_Cancel(&request);
  if (ended(request)) return;
  (receive ? receives_ : sends_).push_back({request, std::move(memory)});
}

bool MpiLeftovers::receives_ended() {
  std::erase_if(receives_, [](Leftover& leftover) { return ended(leftover.request); });
  return receives_.empty();
}

void MpiLeftovers::forget_sends() {
  std::erase_if(sends_, [](Leftover& leftover) { return ended(leftover.request); });
  for (Leftover& leftover : sends_) MPI_Request_free(&leftover.request);
  keep_for_ever(sends_);
}

}  // namespace meshloom::comm
