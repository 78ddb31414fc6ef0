// SPDX-License-Identifier: Apache-2.0
// Topology: what a byte costs between two ranks, described, never measured here.
#pragma once

#include <cstdint>
#include <string>

namespace meshloom::planner {

struct Link {
  double latency_seconds = 0.0;
  double bytes_per_second = 0.0;

  bool operator==(const Link&) const = default;
};

/// Topology has hosts of equal size, ranks in order of hosts. The defaults describe hosts of 8
/// ranks with NVLink-like links inside and a network between.
struct Topology {
  int ranks_per_host = 8;
  Link intra_host{6.6e-6, 87.7e9};
  Link inter_host{9.3e-6, 19.3e9};
  /// Added for each peer of a collective (for both halves of an all_reduce).
  double hop_seconds = 0.6e-6;
  /// Reading and writing local memory once: what copies and padding cost.
  double copy_bytes_per_second = 400e9;

  bool operator==(const Topology&) const = default;
};

}  // namespace meshloom::planner
