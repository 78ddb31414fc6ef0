// SPDX-License-Identifier: Apache-2.0
// Threads of OpenMP that soon sleep where they wait: for machines that are not idle.
#pragma once

namespace meshloom::base {

/// A thread of libgomp looks so often whether it may go on before it sleeps, where it waits for
/// another. Its own default is some milliseconds of looking: where other programs have the cores,
/// the thread that waits then takes the time of the one that it waits for, and steps take twenty
/// times as long or more. This costs steps of small models about a hundredth where the cores are
/// free, and where they are not a fraction of what higher counts do (tests/bench/README.md).
inline constexpr const char* kSpinCount = "3000";

/// A program that computes calls it before all else. Sets the count, unless the user has set it
/// (GOMP_SPINCOUNT) or what it follows from (OMP_WAIT_POLICY), and executes the program anew with
/// the same `argv`: libgomp has read the environment when it was loaded, before anything of the
/// program ran. The process stays the same, with its number, its descriptors and its other
/// variables, and what was set ends the second call at once. Returns as if nothing had happened
/// where /proc does not say which file the program is, or where that file has been replaced.
void use_quiet_threads(char** argv);

}  // namespace meshloom::base
