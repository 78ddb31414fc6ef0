// SPDX-License-Identifier: Apache-2.0
// CoreTimes: whether the threads of this process find cores that are free.
#pragma once

#include <filesystem>
#include <optional>

namespace meshloom::train {

/// The times are summed over threads, in seconds.
struct CoreTimes {
  double ran = 0.0;     ///< in which they had a core
  double waited = 0.0;  ///< in which they could have run and had none; who sleeps does not wait
};

/// Returns the sum over all threads that this process has, since each began; nothing where the
/// kernel does not tell (it has no schedstat). Takes about 10 us a thread. The folder is a
/// parameter for tests.
std::optional<CoreTimes> read_core_times(const std::filesystem::path& tasks = "/proc/self/task");

/// Returns what has been added from `before` to `after`; threads that have ended meanwhile count
/// for nothing.
CoreTimes core_times_between(const CoreTimes& before, const CoreTimes& after);

}  // namespace meshloom::train
