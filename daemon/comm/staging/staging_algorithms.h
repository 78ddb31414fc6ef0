// SPDX-License-Identifier: Apache-2.0
// Algorithms for memory of a device, by those of the host: what is used where no library moves data
// between devices.
#pragma once

#include <memory>

#include "daemon/comm/flight/algorithms.h"
#include "daemon/comm/process_group.h"

namespace meshloom::comm {

/// Returns `inner`, which takes host memory, where the options name no device; else algorithms that
/// take both. A call on device memory is copied to pinned host memory behind all that the device's
/// stream was given before, carried out there by `inner`, and copied back. The host waits for the
/// first copy alone, and never in advance(). Calls are begun on all ranks in the order in which
/// they were issued, those on host memory too. Such a group has no symmetric memory and no
/// exposures.
std::unique_ptr<Algorithms> with_staging(std::unique_ptr<Algorithms> inner,
                                         const GroupOptions& options);

}  // namespace meshloom::comm
