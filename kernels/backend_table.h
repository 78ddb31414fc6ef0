// SPDX-License-Identifier: Apache-2.0
// The table of devices: which there are in this process, and who computes on each.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "kernels/backend.h"

namespace meshloom::kernels {

/// Adds a device. Programs and the tests' main fill the table at their start, before any rank or
/// thread asks it; it never shrinks. `backend` is called whenever somebody asks for the device, by
/// any thread, and gives the same object each time. Throws InternalError for a device that is
/// there.
void add_device(Device device, std::function<Backend&()> backend);

/// Returns the backend of a device. Throws Unimplemented naming those of its kind that there are.
Backend& backend_for(Device device);

/// Notes, at the program's start as well, why it has no device of a kind: one line, which says what
/// to do. Refusals of such devices tell it.
void note_missing(DeviceKind kind, std::string why);
/// Returns what was noted; without a note "this program has no cuda backend".
std::string missing_text(DeviceKind kind);

/// Returns the indices of a kind's devices, in ascending order.
std::vector<int> device_indices(DeviceKind kind);

}  // namespace meshloom::kernels
