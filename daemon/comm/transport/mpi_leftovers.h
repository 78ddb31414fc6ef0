// SPDX-License-Identifier: Apache-2.0
// MpiLeftovers: requests that were given up and that MPI has not let go of.
#pragma once

#include <mpi.h>

#include <memory>
#include <vector>

namespace meshloom::comm {

/// They are shared by all transports of a rank. Giving up is local as long as no peer takes part
/// yet: a receive without a message is cancelled, a message without a receive just stays unread.
/// What was matched has to run to its end, while both buffers live.
class MpiLeftovers {
 public:
  MpiLeftovers() = default;
  /// Memory that MPI still holds stays mapped until the process ends.
  ~MpiLeftovers();
  MpiLeftovers(const MpiLeftovers&) = delete;
  MpiLeftovers& operator=(const MpiLeftovers&) = delete;

  /// `memory` is the request's buffer if that is not the user's.
  void give_up(MPI_Request request, bool receive, std::shared_ptr<void> memory);
  bool empty() const { return receives_.empty() && sends_.empty(); }
  /// Tells whether MPI may write to a user's buffer as soon as it is called: then only the recovery
  /// may.
  bool holds_receives() const { return !receives_.empty(); }
  /// Returns true if every receive has ended.
  bool receives_ended();
  /// Forgets sends: by now every rank's receives have ended, so no one reads them.
  void forget_sends();

 private:
  struct Leftover {
    MPI_Request request;
    std::shared_ptr<void> memory;
  };
  static void keep_for_ever(std::vector<Leftover>& leftovers);

  std::vector<Leftover> receives_, sends_;
};

}  // namespace meshloom::comm
