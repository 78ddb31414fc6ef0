// SPDX-License-Identifier: Apache-2.0
// How often shared memory was made: what steps of training must not do.
#pragma once

#include <cstdint>

namespace meshloom::comm {

/// Segments that this process has made since it began, for tensors, workspaces and signals of all
/// its ranks. Making one also touches it, so where this stands still no collective took memory or
/// met a page for the first time. Any thread may ask.
std::uint64_t segments_made();

}  // namespace meshloom::comm
