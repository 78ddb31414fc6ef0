// SPDX-License-Identifier: Apache-2.0
// What the environment says about groups over several hosts.
#pragma once

#include "daemon/comm/hierarchy/hierarchy_table.h"
#include "daemon/comm/mesh/mpi_environment.h"

namespace meshloom::comm {

/// MESHLOOM_HIERARCHY: "auto" (the default), "leaders" or "striped", the one way that data takes
/// between hosts, or "off": groups over several hosts send all over messages. Throws
/// InvalidArgument naming another value.
HierarchyOptions hierarchy_from_environment(const EnvironmentLookup& = process_environment());

}  // namespace meshloom::comm
