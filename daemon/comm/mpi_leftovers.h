// SPDX-License-Identifier: Apache-2.0
// MpiLeftovers: requests that were given up and that MPI has not let go of.
#pragma once

#include <mpi.h>

#include <vector>

namespace meshloom::comm {

/// Shared by all transports of a rank. Giving up is local as long as no peer takes part yet: a
/// receive without a message is cancelled, a message without a receive just stays unread. What was
/// matched has to run to its end, while both buffers live.
class MpiLeftovers {
 public:
  void give_up(MPI_Request request, bool receive);
  bool empty() const { return receives_.empty() && sends_.empty(); }
  /// True where every receive has ended.
  bool receives_ended();
  /// Forgets sends: by now every rank's receives have ended, so no one reads them.
  void forget_sends();

 private:
  std::vector<MPI_Request> receives_, sends_;
};

}  // namespace meshloom::comm
