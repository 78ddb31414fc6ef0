// SPDX-License-Identifier: Apache-2.0
// The folders of runs at a start of the daemon.
#pragma once

#include "daemon/control/stores/run_store.h"
#include "daemon/control/stores/state_dir.h"

namespace meshloom::control {

/// Before any run begins: removes what a daemon that died has left of runs, states and weights that
/// were removed, and what it had begun to write; moves folders of which no record knows to the
/// LostFolder, so that their names are free.
void sweep_run_folders(const StateDir& state, RunStore& store);

}  // namespace meshloom::control
