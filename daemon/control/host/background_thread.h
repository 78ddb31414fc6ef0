// SPDX-License-Identifier: Apache-2.0
// Threads that work beside training give way to it.
#pragma once

#include <functional>

namespace meshloom::control {

/// Lowers the priority of the calling thread, for good: on Linux that of a thread is its own, and
/// raising it again needs rights that a daemon lacks.
void give_way_to_training();

/// Carries `work` out on a thread of its own that gives way, for a caller whose thread goes on to
/// other work. Waits for it; throws what it throws.
void run_in_background(const std::function<void()>& work);

}  // namespace meshloom::control
