// SPDX-License-Identifier: Apache-2.0
// Ledger: the one writer of the journal, with the request ids and epochs in it, and the stores
// whose records it holds.
#pragma once

#include <algorithm>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <exception>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "daemon/control/stores/journal.h"
#include "daemon/control/stores/request_log.h"
#include "kernels/base/error.h"
#include "v1/journal.pb.h"

namespace meshloom::control {

class JournaledStore;

/// Epochs are promised in blocks, so that few records are written and no epoch is given out twice,
/// not even by a daemon that died between giving one out and writing it down. Not synchronised.
class EpochReserve {
 public:
  /// Of replay: none up to here is given out again.
  void skip(std::int64_t epoch) { asked_ = newest_ = std::max(newest_, epoch); }

  std::int64_t newest() const { return newest_; }
  /// What a record that promises all asked epochs holds.
  std::int64_t asked() const { return asked_; }

  bool can_give() const { return newest_ < promised_; }
  std::int64_t give() { return ++newest_; }

  bool running_out() const { return asked_ - newest_ < kBlock / 2; }
  /// Asks for the next block: returns what the record of it holds.
  std::int64_t ask() { return asked_ = newest_ + kBlock; }
  /// Such a record is durable.
  void promise(std::int64_t epoch) { promised_ = std::max(promised_, epoch); }

 private:
  static constexpr std::int64_t kBlock = 64;

  std::int64_t newest_ = 0;    ///< that was given out
  std::int64_t asked_ = 0;     ///< the journal is to promise up to here
  std::int64_t promised_ = 0;  ///< and it has up to here
};

/// A store changes its memory, appends the record under its own mutex, and waits without it
/// (JournaledStore). One thread writes what has come together since its last write with one
/// fdatasync. When the journal has grown to twice what lives in it, another thread compacts it,
/// while appends go on. All methods may be called from any thread.
///
/// Records are written in order. A disk that takes no more holds up those that have taken effect,
/// and refuses the others. A record that the journal can never take, since it is too large or a
/// defect makes it throw, is refused or set aside: those behind it go on.
///
/// The ledger itself reads what a record says of requests, epochs and deleted resources. That of a
/// kept record counts at once, that of a refusable one once it is durable, before the store is
/// told.
class Ledger {
 public:
  /// Numbers records in the order of append, from 1.
  using Ticket = std::int64_t;

  enum class Need {
    kKept,  ///< has taken effect: tried again until it is durable, set aside if it never can be
    kRefusable,        ///< has no effect unless it is durable; leaves the reserve to others
    kRefusableUrgent,  ///< the same, but may use the reserve: it makes room
  };

  /// What has become of a compaction.
  enum class CompactionStage {
    kBegun,    ///< its thread is about to write the new file
    kWritten,  ///< and has written it
    kInPlace,  ///< the writing thread has put it in the journal's place
    kFailed,   ///< the journal stays as it is; there is another when it has grown further
  };

  using Visit = std::function<void(const v1::JournalRecord&)>;
  /// Called by the thread that takes a compaction to this stage, which does not go on before it
  /// returns.
  using OnCompaction = std::function<void(CompactionStage)>;

  /// Opens the journal and hands each of its records to all stores, which outlive this. What it
  /// says of damage is in Journal. A snapshot has the records of the stores in this order.
  Ledger(const std::filesystem::path& file, std::vector<JournaledStore*> stores,
         OnCompaction on_compaction = nullptr);
  /// Tries once more to write what is left, and says in the log what could not be. A compaction
  /// that is under way is given up.
  ~Ledger();
  Ledger(const Ledger&) = delete;
  Ledger& operator=(const Ledger&) = delete;

  /// Lets the stores make of the replay what a restart changes, compacts the journal, starts
  /// writing and asks for the first epochs. The writing thread calls the stores without the
  /// ledger's mutex, before any `wait` for the record returns; `snapshot` is also called by this.
  void start();

  /// What tells this journal from others, also when it is moved; empty before start() for one that
  /// was written before there were ids.
  const std::string& journal_id() const { return journal_id_; }
  /// No record was replayed.
  bool is_new() const { return is_new_; }

  /// Queues; does not block.
  Ticket append(v1::JournalRecord record, Need need = Need::kKept);

  /// True once the record is on disk; false if an attempt to write it, or one before it, has failed
  /// and it is tried again. Throws what refused a refusable one or set a kept one aside.
  bool wait(Ticket ticket);
  /// The same for who has nobody to tell: false also for one that was set aside.
  bool wait_kept(Ticket ticket);

  /// What the journal does not have and why, for people; empty: it has all. See
  /// ListWorkersResponse.journal_trouble.
  std::vector<std::string> troubles() const;

  /// Nothing for a new request. Throws InvalidArgument (REQUEST_ID_REUSED).
  std::optional<v1::RequestRecord> find_request(const RequestKey& key) const;

  /// True if the journal has promised another epoch, which it may have whenever the stores'
  /// on_durable() is called.
  bool can_give_epoch() const;
  /// An epoch that was never given out before. Only while can_give_epoch().
  std::int64_t give_epoch();
  std::int64_t newest_epoch() const;

 private:
  struct Item {
    Ticket ticket = 0;
    Need need = Need::kKept;
    v1::JournalRecord record;
    std::size_t bytes = 0;
  };
  struct Compaction {
    Compaction(const Journal& journal, const std::function<void(const Journal::Visit&)>& produce)
        : rewrite(journal, produce) {}

    Journal::Rewrite rewrite;
    std::exception_ptr error;
    bool ended = false;   ///< with the mutex: its thread is done with the others
    std::jthread thread;  ///< last, so that it is stopped and joined before the rest goes
  };

  void replay_one(const v1::JournalRecord& record);
  // With the mutex held, or before anybody else has the ledger.
  void learn(const v1::JournalRecord& record);
  Ticket queue(v1::JournalRecord record, Need need);
  Ticket ask_epochs();

  void run();
  void write_batch(std::vector<Item> batch);
  void append_batch(const std::vector<Item>& batch);
  Ticket give_back_half(std::vector<Item>& batch);
  void refuse(std::vector<Item>& batch, const std::exception_ptr& error);
  void refuse_all(const std::vector<Item>& items, const std::exception_ptr& error);
  void set_aside(const Item& item, const Error& error);
  void keep(std::vector<Item> batch, const std::string& why, const std::exception_ptr& error);
  void settle(const std::vector<Item>& written, Ticket upto);
  void compact_if_large();
  void begin_compaction();
  void carry_out(Compaction& compaction, const std::stop_token& stop);
  bool compaction_ended() const { return compaction_ && compaction_->ended; }
  void end_compaction();
  void give_up_compaction(const char* error);
  void tell(CompactionStage stage) const;
  std::vector<v1::JournalRecord> own_snapshot() const;

  mutable std::mutex mutex_;
  RequestLog requests_;
  EpochReserve epochs_;
  std::string journal_id_;  ///< does not change from start() on
  bool is_new_ = true;
  const std::vector<JournaledStore*> stores_;
  const OnCompaction on_compaction_;
  Journal journal_;  ///< behind what its replay fills
  std::uint64_t compact_at_ = 0;
  std::condition_variable work_;     ///< for the writer
  std::condition_variable settled_;  ///< for those who wait
  std::deque<Item> queue_;
  std::map<Ticket, std::exception_ptr> refused_;    ///< until somebody has waited for it
  std::map<Ticket, std::exception_ptr> set_aside_;  ///< the newest
  /// By the names of the records that were set aside, until another of the name is on disk.
  std::map<std::string, std::string> troubles_;
  Ticket last_ = 0;
  /// The last when the newest attempt began: what has come since is tried at once.
  Ticket known_ = 0;
  Ticket durable_ = 0;
  Ticket tried_ = 0;     ///< an attempt to write up to here has failed
  std::string failing_;  ///< why what waits cannot be written; empty: it can
  bool closing_ = false;
  std::unique_ptr<Compaction> compaction_;  ///< the writer's; null while none is under way
  std::thread thread_;
};

}  // namespace meshloom::control
