// SPDX-License-Identifier: Apache-2.0
// What the library of the emulated device exports beside a plugin's entry, for the programs of
// tests that open it.
#pragma once

#include <cstdint>

#include "tests/support/cuda_emulator/kernel_record.h"

namespace meshloom::emulator {

inline constexpr const char* kSetSeedName = "meshloom_emulator_set_seed";
using SetSeed = void (*)(std::uint64_t seed);

/// Calls `take` with the text of each fault since the last call, and lets the devices go on.
inline constexpr const char* kTakeFaultsName = "meshloom_emulator_take_faults";
using TakeFaults = void (*)(void (*take)(void* into, const char* text), void* into);

/// Begins to record launches, by kernel, where that has not begun.
inline constexpr const char* kRecordLaunchesName = "meshloom_emulator_record_launches";
using RecordLaunches = void (*)();
/// Calls `take` with each kernel that ran since that began.
inline constexpr const char* kRecordedLaunchesName = "meshloom_emulator_recorded_launches";
using RecordedLaunches = void (*)(void (*take)(void* into, const KernelRecord& kernel), void* into);

}  // namespace meshloom::emulator
