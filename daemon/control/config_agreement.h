// SPDX-License-Identifier: Apache-2.0
// One --config file for all ranks of a launch, whichever hosts have it.
#pragma once

#include <string>

#include "daemon/comm/bootstrap/bootstrap.h"
#include "daemon/comm/mesh/topology.h"
#include "daemon/control/daemon_options.h"

namespace meshloom::control {

/// Every rank calls it. All go by the file that rank 0 has read: ranks whose host does not have it
/// get its text and fill in their options anew. Returns what is wrong, the same on all ranks: rank
/// 0 cannot read its file, another rank has read other text, or it is given to others and not to
/// rank 0. Empty: nothing.
std::string agree_on_config(comm::Bootstrap& bootstrap, const comm::Topology& topology,
                            ParsedDaemonOptions* parsed);

}  // namespace meshloom::control
