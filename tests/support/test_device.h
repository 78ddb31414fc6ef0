// SPDX-License-Identifier: Apache-2.0
// The device on which a test computes, as the command line of its program says (test_main.cpp).
#pragma once

#include <string_view>

#include "kernels/base/device.h"

namespace meshloom::testing {

/// The CPU, or with `--device fenced` the first fenced device.
Device test_device();
/// Returns the device of one of several ranks: the CPU, which they share, or a fenced device of its
/// own.
Device test_device(int rank);

/// Chooses by name: "cpu" or "fenced". False, and nothing changes, for another one. For main alone.
bool choose_test_device(std::string_view name);

}  // namespace meshloom::testing
