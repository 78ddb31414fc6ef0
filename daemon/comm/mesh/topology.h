// SPDX-License-Identifier: Apache-2.0
// Which ranks share a host: those that see each other's memory.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "daemon/comm/bootstrap/bootstrap.h"

namespace meshloom::comm {

/// One rank runs at this place.
struct RankPlace {
  int host = 0;        ///< hosts are numbered by their lowest rank
  int local_rank = 0;  ///< position among the ranks of its host, in rank order
  int local_size = 1;
  int pid = 0;
  std::string hostname;  ///< for people; equal names say nothing about shared memory
};

struct Topology {
  std::vector<RankPlace> ranks;
  int hosts = 1;

  /// Returns the number of each rank's host, by rank.
  std::vector<int> host_numbers() const;
};

/// Every rank of the world calls it. Two ranks are on one host if the one can map a segment of the
/// other (SegmentDirectory), by any way that symmetric memory has, also where it is turned off.
/// Environment variables and host names are not asked: containers share names, and launchers can be
/// wrong. Throws IoError or ResourceExhausted if this rank has no page to show, and what the
/// bootstrap throws.
Topology probe_topology(Bootstrap&);

}  // namespace meshloom::comm
