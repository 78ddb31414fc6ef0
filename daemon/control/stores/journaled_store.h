// SPDX-License-Identifier: Apache-2.0
// JournaledStore: what a store is that shares the journal with the jobs.
#pragma once

#include <deque>
#include <functional>
#include <mutex>
#include <utility>

#include "daemon/control/stores/ledger.h"
#include "v1/journal.pb.h"

namespace meshloom::control {

/// Whether a resolved config is one that is looked for.
using ConfigTest = std::function<bool(const v1::RunConfig& resolved)>;

/// Its state is what its records make of it, by apply(), in a replay and while it runs alike: a
/// change is a record that is appended, and takes effect once it is durable. Who decides about a
/// change holds `change_mutex_` from the look at the state to the end of commit().
class JournaledStore {
 public:
  virtual ~JournaledStore() = default;

  // For the owner of the ledger: replay() for each record, then join(), then the rest by the
  // ledger's thread.
  void replay(const v1::JournalRecord& record) {
    const std::lock_guard lock(mutex_);
    apply(record);
  }
  void join(Ledger& ledger) {
    ledger_ = &ledger;
    settle_after_restart();
  }
  /// Its whole state, as records.
  virtual void snapshot(const Ledger::Visit& append) const = 0;
  void on_durable(Ledger::Ticket upto) {
    const std::lock_guard lock(mutex_);
    for (; !undecided_.empty() && undecided_.front().first <= upto; undecided_.pop_front())
      apply(undecided_.front().second);
  }
  void on_refused(Ledger::Ticket ticket) {
    const std::lock_guard lock(mutex_);
    std::erase_if(undecided_, [&](const auto& item) { return item.first == ticket; });
  }

 protected:
  /// What a record says of this store; those of others say nothing. With `mutex_` held.
  virtual void apply(const v1::JournalRecord& record) = 0;
  /// The replay is done. What it changes here is in the next snapshot.
  virtual void settle_after_restart() = 0;

  /// Returns once the record is durable and applied; a kept one is applied at once, and what became
  /// of its record is told by the ledger alone. Throws what refused it. Without `mutex_`.
  void commit(const v1::JournalRecord& record, Ledger::Need need = Ledger::Need::kRefusable) {
    Ledger::Ticket ticket = 0;
    {
      const std::lock_guard lock(mutex_);
      ticket = ledger_->append(record, need);
      if (need == Ledger::Need::kKept)
        apply(record);
      else
        undecided_.emplace_back(ticket, record);
    }
    if (need == Ledger::Need::kKept)
      ledger_->wait_kept(ticket);
    else
      ledger_->wait(ticket);
  }
  Ledger& ledger() const { return *ledger_; }

  mutable std::mutex mutex_;  ///< for the state; taken after change_mutex_
  std::mutex change_mutex_;

 private:
  Ledger* ledger_ = nullptr;
  std::deque<std::pair<Ledger::Ticket, v1::JournalRecord>> undecided_;
};

}  // namespace meshloom::control
