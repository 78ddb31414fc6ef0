// SPDX-License-Identifier: Apache-2.0
// DrainStore: whether the daemon is drained, which a restart does not change.
#pragma once

#include "daemon/control/stores/journaled_store.h"

namespace meshloom::control {

/// All methods may be called from any thread.
class DrainStore final : public JournaledStore {
 public:
  v1::StoredDrain get() const;
  /// Durable when it returns, else it throws (a full disk) and nothing has changed.
  void put(const v1::StoredDrain& drain);

  void snapshot(const Ledger::Visit& append) const override;

 private:
  void apply(const v1::JournalRecord& record) override;
  void settle_after_restart() override {}

  v1::StoredDrain drain_;
};

}  // namespace meshloom::control
