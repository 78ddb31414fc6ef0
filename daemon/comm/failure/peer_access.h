// SPDX-License-Identifier: Apache-2.0
// PeerAccess: whether peers may still touch memory of collectives that this rank gave up.
#pragma once

namespace meshloom::comm {

/// There is one per rank, shared by all of its groups and its RankGroups. Over symmetric memory a
/// rank copies from and to the memory of its peers whenever it polls, so a collective that one rank
/// has given up ends on the others only when they meet.
struct PeerAccess {
  bool open = false;
};

}  // namespace meshloom::comm
