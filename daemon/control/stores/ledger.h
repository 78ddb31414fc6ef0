// SPDX-License-Identifier: Apache-2.0
// Ledger: the one writer of the journal, below the stores.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <exception>
#include <functional>
#include <map>
#include <mutex>
#include <thread>
#include <vector>

#include "daemon/control/stores/journal.h"
#include "v1/journal.pb.h"

namespace meshloom::control {

/// A store changes its memory, appends the record under its own mutex, and waits without it. One
/// thread writes what has come together since its last write with one fdatasync, and compacts the
/// journal when it has grown to twice what lives in it. All methods may be called from any thread.
class Ledger {
 public:
  /// Numbers records in the order of append, from 1.
  using Ticket = std::int64_t;

  enum class Need {
    kKept,             ///< has taken effect: tried again until it is durable
    kRefusable,        ///< has no effect unless it is durable; leaves the reserve to others
    kRefusableUrgent,  ///< the same, but may use the reserve: it makes room
  };

  using Replay = std::function<void(const v1::JournalRecord&)>;
  using Visit = std::function<void(const v1::JournalRecord&)>;
  struct Hooks {
    /// Everything that must survive, as records: what was appended and not refused, but not those
    /// refusable ones of which `durable` has not told.
    std::function<void(const Visit& append)> snapshot;
    /// All records up to this one are on disk, but for those that were refused.
    std::function<void(Ticket)> durable;
    std::function<void(Ticket)> refused;
  };

  /// Opens the journal and hands its records to `replay`. What it says of damage is in Journal.
  Ledger(const std::filesystem::path& file, const Replay& replay);
  /// Tries once more to write what is left, and says in the log what could not be.
  ~Ledger();
  Ledger(const Ledger&) = delete;
  Ledger& operator=(const Ledger&) = delete;

  /// Compacts the journal and starts writing. The hooks are called by the writing thread without
  /// the ledger's mutex, before any `wait` for the record returns; `snapshot` also by this call.
  void start(Hooks hooks);

  /// Queues; does not block.
  Ticket append(v1::JournalRecord record, Need need = Need::kKept);

  /// True once the record is on disk; false if an attempt to write it has failed and it is tried
  /// again. Throws what refused a refusable one.
  bool wait(Ticket ticket);

 private:
  struct Item {
    Ticket ticket = 0;
    Need need = Need::kKept;
    v1::JournalRecord record;
    std::size_t bytes = 0;
  };

  void run();
  std::vector<Item> take_batch();
  void write_batch(std::vector<Item> batch);
  void refuse(std::vector<Item>& batch, const std::exception_ptr& error);
  void keep(std::vector<Item> batch, const std::string& error);
  void settle(Ticket upto);
  void compact_if_large();
  void compact();

  Journal journal_;
  Hooks hooks_;
  std::uint64_t compact_at_ = 0;
  std::mutex mutex_;
  std::condition_variable work_;     ///< for the writer
  std::condition_variable settled_;  ///< for those who wait
  std::deque<Item> queue_;
  std::map<Ticket, std::exception_ptr> refused_;
  Ticket last_ = 0;
  Ticket durable_ = 0;
  Ticket tried_ = 0;  ///< an attempt to write up to here has failed
  bool failing_ = false;
  bool closing_ = false;
  std::thread thread_;
};

}  // namespace meshloom::control
