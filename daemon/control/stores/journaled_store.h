// SPDX-License-Identifier: Apache-2.0
// JournaledStore: what a store is whose records are in the ledger's journal.
#pragma once

#include <algorithm>
#include <deque>
#include <functional>
#include <mutex>
#include <optional>
#include <utility>

#include "daemon/control/stores/ledger.h"
#include "v1/journal.pb.h"

namespace meshloom::control {

/// Whether a resolved config is one that is looked for.
using ConfigTest = std::function<bool(const v1::RunConfig& resolved)>;

/// The state of a store is what its records make of it: apply() in a replay, and while it runs as
/// well. A change is a record that is appended. One that is refusable takes effect once it is
/// durable (propose); one that is kept takes effect at once and is durable some time later (keep).
/// Who asked for either is told after the record is durable, for which the ledger is asked.
class JournaledStore {
 public:
  virtual ~JournaledStore() = default;

  // For the ledger: replay() for each record, then join(), then the rest by the ledger's thread.
  void replay(const v1::JournalRecord& record) {
    const std::lock_guard lock(mutex_);
    apply(record);
  }
  void join(Ledger& ledger) {
    ledger_ = &ledger;
    settle_after_restart();
  }
  /// Its whole state, as records: what was appended and not refused, but not those refusable ones
  /// of which on_durable() has not told.
  virtual void snapshot(const Ledger::Visit& append) const = 0;
  /// All records up to this one are on disk, but for those that were refused or set aside.
  virtual void on_durable(Ledger::Ticket upto) {
    const std::lock_guard lock(mutex_);
    take_effect_up_to(upto);
  }
  virtual void on_refused(Ledger::Ticket ticket) {
    const std::lock_guard lock(mutex_);
    forget(ticket);
  }

 protected:
  /// A refusable record that is not decided yet.
  struct Undecided {
    Ledger::Ticket ticket = 0;
    v1::JournalRecord record;
  };

  /// What a record says of this store; those of others say nothing. With `mutex_` held.
  virtual void apply(const v1::JournalRecord& record) = 0;
  /// A refusable record of this store is durable. With `mutex_` held.
  virtual void take_effect(v1::JournalRecord record) { apply(record); }
  /// The replay is done. What it changes here is in the next snapshot. Nobody else has the store
  /// yet, so it needs no `mutex_`, with which it could not look at files.
  virtual void settle_after_restart() = 0;

  /// Appends a record that takes effect once it is durable. `effect` is a copy of it, which the
  /// caller makes before others have to wait. With `mutex_` held.
  Ledger::Ticket propose(v1::JournalRecord record, v1::JournalRecord effect, Ledger::Need need) {
    const Ledger::Ticket ticket = ledger_->append(std::move(record), need);
    undecided_.push_back({ticket, std::move(effect)});
    return ticket;
  }
  /// Appends a record of what has taken effect. With `mutex_` held.
  Ledger::Ticket keep(v1::JournalRecord record) { return ledger_->append(std::move(record)); }

  /// Returns once the record is durable and has taken effect; a kept one is applied at once, and
  /// what became of its record is told by the ledger alone. Throws what refused it. Without
  /// `mutex_`.
  void commit(const v1::JournalRecord& record, Ledger::Need need = Ledger::Need::kRefusable) {
    v1::JournalRecord copy = record;
    Ledger::Ticket ticket = 0;
    if (need == Ledger::Need::kKept) {
      {
        const std::lock_guard lock(mutex_);
        ticket = keep(std::move(copy));
        apply(record);
      }
      ledger_->wait_kept(ticket);
      return;
    }
    {
      v1::JournalRecord effect = record;
      const std::lock_guard lock(mutex_);
      ticket = propose(std::move(copy), std::move(effect), need);
    }
    ledger_->wait(ticket);
  }

  void take_effect_up_to(Ledger::Ticket upto) {
    while (!undecided_.empty() && undecided_.front().ticket <= upto) {
      v1::JournalRecord record = std::move(undecided_.front().record);
      undecided_.pop_front();
      take_effect(std::move(record));
    }
  }
  /// The record, if it is one of this store.
  std::optional<v1::JournalRecord> forget(Ledger::Ticket ticket) {
    const auto found = std::find_if(undecided_.begin(), undecided_.end(),
                                    [&](const Undecided& item) { return item.ticket == ticket; });
    if (found == undecided_.end()) return std::nullopt;
    std::optional<v1::JournalRecord> record = std::move(found->record);
    undecided_.erase(found);
    return record;
  }
  const std::deque<Undecided>& undecided() const { return undecided_; }
  Ledger& ledger() const { return *ledger_; }

  /// For the state; taken after change_mutex_. No file system is asked with it held.
  mutable std::mutex mutex_;
  /// Held by who decides about a change, from the look at the state to the end of commit().
  std::mutex change_mutex_;

 private:
  Ledger* ledger_ = nullptr;
  std::deque<Undecided> undecided_;  ///< in order of tickets
};

}  // namespace meshloom::control
