// SPDX-License-Identifier: Apache-2.0
// The fenced devices of this process, cuda:0 and so on.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "tests/support/fenced_device/fenced_backend.h"

namespace meshloom::testing {

/// The device cuda:`index`, which is made when it is first asked for and lasts to the end of the
/// process. From any thread.
FencedBackend& fenced_device(int index);

/// Adds cuda:0 to cuda:`count - 1` to the table of devices, and makes none of them.
void add_fenced_devices(int count);

/// The seed of the order of work, for devices that are made later. Without a call it is
/// MESHLOOM_FENCED_SEED of the environment, or 1.
void set_fenced_seed(std::uint64_t seed);
std::uint64_t fenced_seed();

/// Errors of all devices that nobody was told, since the ends of streams and segments found them.
std::vector<std::string> take_fenced_errors();

}  // namespace meshloom::testing
