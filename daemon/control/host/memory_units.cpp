// SPDX-License-Identifier: Apache-2.0
#include "daemon/control/host/memory_units.h"

namespace meshloom::control {

MemoryUnits MemoryCount::take(std::vector<Share> shares, const Check& check) {
  const std::lock_guard lock(state_->mutex);
  for (const Share& share : shares) {
    const auto found = state_->bytes.find(share.account);
    check(share, found == state_->bytes.end() ? 0 : found->second);
  }
  for (const Share& share : shares) state_->bytes[share.account] += share.bytes;
  return MemoryUnits(Hold([state = state_, shares = std::move(shares)] {
    const std::lock_guard giving_back(state->mutex);
    for (const Share& share : shares) {
      const auto found = state->bytes.find(share.account);
      if (found != state->bytes.end() && (found->second -= share.bytes) == 0)
        state->bytes.erase(found);
    }
  }));
}

std::int64_t MemoryCount::taken(const std::string& account) const {
  const std::lock_guard lock(state_->mutex);
  const auto found = state_->bytes.find(account);
  return found == state_->bytes.end() ? 0 : found->second;
}

}  // namespace meshloom::control
