// SPDX-License-Identifier: Apache-2.0
// The device on which a test computes, as the command line of its program says (test_main.cpp).
#pragma once

#include <string_view>

#include "kernels/base/device.h"

namespace meshloom::testing {

/// The CPU, or the first device of the kind that `--device` names.
Device test_device();
/// Returns the device of one of several ranks: the CPU, which they share, or a device of its own.
Device test_device(int rank);

/// Chooses by name: "cpu", "fenced" (the CPU behind a fence), "cuda" (a GPU) or "cuda-emulated".
/// False, and nothing changes, for another one. For main alone.
bool choose_test_device(std::string_view name);
/// The name that was chosen.
std::string_view test_device_name();

}  // namespace meshloom::testing
