// SPDX-License-Identifier: Apache-2.0
#include "daemon/comm/symm_mem/symmetric_memory.h"

#include <cassert>

namespace meshloom::comm {

SymmetricMemory::~SymmetricMemory() { assert(groups_.empty()); }

SymmetricGroup& SymmetricMemory::enable(ProcessGroup& group) {
  std::unique_ptr<SymmetricGroup>& one = groups_[&group];
  // A group that could not be made must be asked again, so nothing stays of it.
  try {
    if (!one) one = make_group(group);
  } catch (...) {
    groups_.erase(&group);
    throw;
  }
  return *one;
}

SymmetricGroup* SymmetricMemory::enabled(const ProcessGroup& group) const {
  const auto found = groups_.find(&group);
  return found == groups_.end() ? nullptr : found->second.get();
}

}  // namespace meshloom::comm
