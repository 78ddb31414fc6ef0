// SPDX-License-Identifier: Apache-2.0
#include "daemon/control/stores/drain_store.h"

namespace meshloom::control {

v1::StoredDrain DrainStore::get() const {
  const std::lock_guard lock(mutex_);
  return drain_;
}

void DrainStore::put(const v1::StoredDrain& drain) {
  v1::JournalRecord record;
  *record.mutable_drain() = drain;
  const std::lock_guard one(change_mutex_);
  commit(record);
}

void DrainStore::apply(const v1::JournalRecord& record) {
  if (record.has_drain()) drain_ = record.drain();
}

void DrainStore::snapshot(const Ledger::Visit& append) const {
  v1::JournalRecord record;
  *record.mutable_drain() = get();
  append(record);
}

}  // namespace meshloom::control
