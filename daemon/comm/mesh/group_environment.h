// SPDX-License-Identifier: Apache-2.0
// What the environment says about groups: their way between hosts, and their symmetric memory.
#pragma once

#include "daemon/comm/hierarchy/hierarchy_table.h"
#include "daemon/comm/mesh/mpi_environment.h"
#include "daemon/comm/symm_mem/host_symmetric_memory.h"

namespace meshloom::comm {

/// Reads MESHLOOM_HIERARCHY: "auto" (the default), "leaders" or "striped", the one way that data
/// takes between hosts, or "off": groups over several hosts send all over messages. Throws
/// InvalidArgument naming another value.
HierarchyOptions hierarchy_from_environment(const EnvironmentLookup& = process_environment());

/// Reads MESHLOOM_SYMMETRIC_MEMORY: "auto" (the default), "fd_folder" or "socket", by which way
/// alone descriptors are handed over, or "off": collectives inside a host go over messages too.
/// Throws InvalidArgument naming another value.
SymmetricOptions symmetric_from_environment(const EnvironmentLookup& = process_environment());

}  // namespace meshloom::comm
