// SPDX-License-Identifier: Apache-2.0
// UptimeClock: how long daemons have been up, for what ages on disk.
#pragma once

#include <cstdint>

namespace meshloom::control {

class UptimeClock {
 public:
  virtual ~UptimeClock() = default;
  /// Seconds of all daemons on the state dir together. Any thread may ask.
  virtual std::int64_t uptime() const = 0;
};

}  // namespace meshloom::control
