// SPDX-License-Identifier: Apache-2.0
// Symmetric memory as a source of tensors: what is asked with MemoryKind::kSymmetric lies there.
#pragma once

#include <memory>

#include "daemon/comm/symm_mem/symmetric_memory.h"
#include "daemon/tensor/allocator.h"

namespace meshloom::comm {

/// Makes a source for Allocator::create, whose allocator is ExecutionContext's symmetric_allocator.
/// Each segment is one of `memory`, so that a view of any tensor in it is found by
/// SymmetricGroup::rendezvous and by collectives. Segments never grow: the allocator takes another
/// one. Acquires on the rank's training thread; throws what SymmetricMemory::allocate throws. A
/// segment that is released stays mapped as long as a buffer of some rank holds it.
std::unique_ptr<SegmentSource> make_symmetric_source(std::shared_ptr<SymmetricMemory> memory);

/// Makes an allocator for tensors that collectives of `group`, and of groups split from it, do not
/// copy. Null where the group has no symmetric memory.
std::shared_ptr<Allocator> make_symmetric_allocator(ProcessGroup& group);

}  // namespace meshloom::comm
