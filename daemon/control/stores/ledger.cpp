// SPDX-License-Identifier: Apache-2.0
#include "daemon/control/stores/ledger.h"

#include <algorithm>

#include "daemon/control/host/background_thread.h"
#include "daemon/control/host/random_hex.h"
#include "daemon/control/stores/journal_record.h"
#include "daemon/control/stores/journaled_store.h"
#include "kernels/base/error.h"
#include "kernels/base/log.h"

namespace meshloom::control {
namespace {

constexpr std::size_t kLargestBatch = 4 << 20;
constexpr std::uint64_t kSmallJournal = 1 << 20;  // not worth compacting
constexpr std::chrono::milliseconds kBetweenAttempts{500};

v1::JournalRecord parse(std::string_view payload) {
  v1::JournalRecord record;
  if (!record.ParseFromArray(payload.data(), static_cast<int>(payload.size())))
    throw DataLoss("journal: a record with a right digest cannot be parsed", "JOURNAL_CORRUPT");
  return record;
}

constexpr std::size_t kMostSetAside = 100;  // that are told of

bool refusable(Ledger::Need need) { return need != Ledger::Need::kKept; }

/// Whether no other attempt can end otherwise.
bool is_hopeless(const Error& error) {
  return error.reason() == Journal::kRecordTooLarge || error.kind() == ErrorKind::kInternal;
}

/// The same error with the name of the record.
std::exception_ptr naming_record(const v1::JournalRecord& record, const Error& error) {
  Error::Metadata metadata = error.metadata();
  metadata["record"] = record_name(record);
  const std::string text = fmt::format("{}: {}", metadata["record"], error.what());
  if (error.kind() == ErrorKind::kResourceExhausted)
    return std::make_exception_ptr(ResourceExhausted(text, error.reason(), metadata));
  return std::make_exception_ptr(InternalError(text, error.reason(), metadata));
}

}  // namespace

Ledger::Ledger(const std::filesystem::path& file, std::vector<JournaledStore*> stores,
               OnCompaction on_compaction)
    : stores_(std::move(stores)),
      on_compaction_(std::move(on_compaction)),
      journal_(file, [this](std::string_view payload) { replay_one(parse(payload)); }) {
  if (journal_.cut_file())
    spdlog::warn(
        "journal: its last record has a wrong digest; its {} bytes were cut off and are kept in {}",
        journal_.cut_bytes(), journal_.cut_file()->string());
  else if (journal_.cut_bytes() > 0)
    spdlog::warn("journal: cut an unfinished append of {} bytes", journal_.cut_bytes());
  if (!journal_.reserves())
    spdlog::warn(
        "journal: this file system cannot set space aside, so a full disk also refuses "
        "cancellations");
}

Ledger::~Ledger() {
  {
    const std::lock_guard lock(mutex_);
    closing_ = true;
  }
  work_.notify_all();
  if (thread_.joinable()) thread_.join();
  compaction_.reset();  // the file of one that is under way is removed
  if (!queue_.empty())
    spdlog::error("journal: {} changes could not be written; the next start does not know of them",
                  queue_.size());
}

void Ledger::replay_one(const v1::JournalRecord& record) {
  is_new_ = false;
  for (const auto& item : record.group()) replay_one(item);
  if (record.group_size() > 0) return;
  if (!record.journal_id().empty()) journal_id_ = record.journal_id();
  epochs_.skip(std::max({record.epoch(), record.job().epoch(), record.state().epoch()}));
  learn(record);
  for (JournaledStore* store : stores_) store->replay(record);
}

void Ledger::learn(const v1::JournalRecord& record) {
  if (const std::string gone = deleted_resource(record); !gone.empty())
    requests_.forget_resource(gone);
  if (record.has_request()) requests_.remember(record.request());
}

void Ledger::start() {
  for (JournaledStore* store : stores_) store->join(*this);
  if (journal_id_.empty()) journal_id_ = random_hex();
  compact_if_large();
  if (compaction_) {
    // What the stores settled after the replay has no other record: it is to be in the journal.
    compaction_->thread.join();
    end_compaction();
  }
  thread_ = std::thread([this] { run(); });
  Ticket epochs = 0;
  {
    const std::lock_guard lock(mutex_);
    epochs = ask_epochs();
  }
  wait(epochs);
}

Ledger::Ticket Ledger::append(v1::JournalRecord record, Need need) {
  const std::lock_guard lock(mutex_);
  if (!refusable(need)) learn(record);
  return queue(std::move(record), need);
}

Ledger::Ticket Ledger::queue(v1::JournalRecord record, Need need) {
  const std::size_t bytes = record.ByteSizeLong();
  queue_.push_back({++last_, need, std::move(record), bytes});
  work_.notify_one();
  return last_;
}

Ledger::Ticket Ledger::ask_epochs() {
  v1::JournalRecord record;
  record.set_epoch(epochs_.ask());
  record.set_journal_id(journal_id_);
  return queue(std::move(record), Need::kKept);
}

bool Ledger::wait(Ticket ticket) {
  std::unique_lock lock(mutex_);
  settled_.wait(lock, [&] {
    return durable_ >= ticket || tried_ >= ticket || refused_.count(ticket) > 0 ||
           set_aside_.count(ticket) > 0;
  });
  if (const auto found = set_aside_.find(ticket); found != set_aside_.end())
    std::rethrow_exception(found->second);
  if (const auto found = refused_.find(ticket); found != refused_.end()) {
    const std::exception_ptr error = found->second;
    refused_.erase(found);
    std::rethrow_exception(error);
  }
  return durable_ >= ticket;
}

bool Ledger::wait_kept(Ticket ticket) {
  try {
    return wait(ticket);
  } catch (const Error& error) {
    spdlog::debug("journal: nobody is told that a change was set aside: {}", error.what());
    return false;
  }
}

std::vector<std::string> Ledger::troubles() const {
  const std::lock_guard lock(mutex_);
  std::vector<std::string> told;
  if (!failing_.empty()) told.push_back(fmt::format("changes wait to be written: {}", failing_));
  for (const auto& [name, trouble] : troubles_) told.push_back(trouble);
  return told;
}

std::optional<v1::RequestRecord> Ledger::find_request(const RequestKey& key) const {
  const std::lock_guard lock(mutex_);
  const v1::RequestRecord* found = requests_.find(key);
  return found ? std::optional(*found) : std::nullopt;
}

bool Ledger::can_give_epoch() const {
  const std::lock_guard lock(mutex_);
  return epochs_.can_give();
}

std::int64_t Ledger::give_epoch() {
  const std::lock_guard lock(mutex_);
  const std::int64_t epoch = epochs_.give();
  if (epochs_.running_out()) ask_epochs();
  return epoch;
}

std::int64_t Ledger::newest_epoch() const {
  const std::lock_guard lock(mutex_);
  return epochs_.newest();
}

void Ledger::run() {
  std::unique_lock lock(mutex_);
  while (true) {
    if (!failing_.empty() && !closing_)
      work_.wait_for(lock, kBetweenAttempts,
                     [&] { return closing_ || last_ != known_ || compaction_ended(); });
    else
      work_.wait(lock, [&] { return closing_ || !queue_.empty() || compaction_ended(); });
    if (compaction_ended()) {
      lock.unlock();
      end_compaction();
      lock.lock();
    }
    if (queue_.empty()) {
      if (closing_) return;
      continue;
    }
    const bool last_attempt = closing_;
    known_ = last_;
    std::vector<Item> batch;
    std::size_t bytes = 0;
    while (!queue_.empty() && (batch.empty() || bytes + queue_.front().bytes <= kLargestBatch)) {
      bytes += queue_.front().bytes;
      batch.push_back(std::move(queue_.front()));
      queue_.pop_front();
    }
    lock.unlock();
    write_batch(std::move(batch));
    lock.lock();
    if (last_attempt && !failing_.empty()) return;
  }
}

void Ledger::write_batch(std::vector<Item> batch) {
  Ticket upto = batch.back().ticket;
  while (!batch.empty()) {
    try {
      append_batch(batch);
      break;
    } catch (const Error& error) {
      const bool some_refusable = std::any_of(
          batch.begin(), batch.end(), [](const Item& item) { return refusable(item.need); });
      // Of several that cannot be written together the first may be written alone.
      if (batch.size() > 1 && (is_hopeless(error) || !some_refusable)) {
        upto = give_back_half(batch);
      } else if (some_refusable) {
        refuse(batch, is_hopeless(error) ? naming_record(batch[0].record, error)
                                         : std::current_exception());
      } else if (is_hopeless(error)) {
        set_aside(batch[0], error);
        batch.clear();
      } else {
        return keep(std::move(batch), error.what(), std::current_exception());
      }
    }
  }
  settle(batch, upto);
  compact_if_large();
}

void Ledger::append_batch(const std::vector<Item>& batch) {
  const bool leave_reserve = std::any_of(
      batch.begin(), batch.end(), [](const Item& item) { return item.need == Need::kRefusable; });
  v1::JournalRecord group;
  if (batch.size() > 1)
    for (const Item& item : batch) *group.add_group() = item.record;
  journal_.append((batch.size() == 1 ? batch[0].record : group).SerializeAsString(),
                  leave_reserve ? Journal::Room::kLeaveReserve : Journal::Room::kUseReserve);
}

Ledger::Ticket Ledger::give_back_half(std::vector<Item>& batch) {
  const auto half = batch.begin() + static_cast<std::ptrdiff_t>((batch.size() + 1) / 2);
  {
    const std::lock_guard lock(mutex_);
    queue_.insert(queue_.begin(), std::make_move_iterator(half),
                  std::make_move_iterator(batch.end()));
  }
  batch.erase(half, batch.end());
  return batch.back().ticket;
}

void Ledger::refuse(std::vector<Item>& batch, const std::exception_ptr& error) {
  // Those that may use the reserve get an attempt without those that may not.
  const bool some_ordinary = std::any_of(
      batch.begin(), batch.end(), [](const Item& item) { return item.need == Need::kRefusable; });
  const auto refused_now = [&](const Item& item) {
    return some_ordinary ? item.need == Need::kRefusable : refusable(item.need);
  };
  const auto refused = std::stable_partition(batch.begin(), batch.end(),
                                             [&](const Item& item) { return !refused_now(item); });
  refuse_all({std::make_move_iterator(refused), std::make_move_iterator(batch.end())}, error);
  batch.erase(refused, batch.end());
}

void Ledger::refuse_all(const std::vector<Item>& items, const std::exception_ptr& error) {
  for (const Item& item : items)
    for (JournaledStore* store : stores_) store->on_refused(item.ticket);
  {
    const std::lock_guard lock(mutex_);
    for (const Item& item : items) refused_[item.ticket] = error;
  }
  settled_.notify_all();
}

void Ledger::set_aside(const Item& item, const Error& error) {
  const std::string name = record_name(item.record);
  const std::string trouble =
      fmt::format("{} is not written down as it is now, and the next start does not know of it: {}",
                  name, error.what());
  spdlog::error("journal: {}", trouble);
  const std::lock_guard lock(mutex_);
  set_aside_[item.ticket] = naming_record(item.record, error);
  if (set_aside_.size() > kMostSetAside) set_aside_.erase(set_aside_.begin());
  if (troubles_.size() < kMostSetAside || troubles_.count(name) > 0) troubles_[name] = trouble;
}

void Ledger::keep(std::vector<Item> batch, const std::string& why,
                  const std::exception_ptr& error) {
  // What is behind it cannot be written before it; what came during the attempt gets its own.
  std::vector<Item> behind;
  {
    const std::lock_guard lock(mutex_);
    const auto first = std::stable_partition(
        queue_.begin(), queue_.end(),
        [this](const Item& item) { return !refusable(item.need) || item.ticket > known_; });
    behind.assign(std::make_move_iterator(first), std::make_move_iterator(queue_.end()));
    queue_.erase(first, queue_.end());
  }
  // First, so that whoever waits for one of them finds that it was refused.
  refuse_all(behind, error);
  const std::lock_guard lock(mutex_);
  queue_.insert(queue_.begin(), std::make_move_iterator(batch.begin()),
                std::make_move_iterator(batch.end()));
  if (failing_.empty())
    spdlog::error("{}; {} changes wait and are tried again", why, queue_.size());
  failing_ = why;
  tried_ = known_;
  settled_.notify_all();
}

void Ledger::settle(const std::vector<Item>& written, Ticket upto) {
  {
    const std::lock_guard lock(mutex_);
    for (const Item& item : written) {
      epochs_.promise(item.record.epoch());
      if (refusable(item.need)) learn(item.record);
      if (!troubles_.empty()) troubles_.erase(record_name(item.record));
    }
  }
  for (JournaledStore* store : stores_) store->on_durable(upto);
  const std::lock_guard lock(mutex_);
  if (!failing_.empty() && !written.empty()) {
    spdlog::info("journal: written again, nothing was lost");
    failing_.clear();
  }
  durable_ = upto;
  settled_.notify_all();
}

void Ledger::compact_if_large() {
  if (compaction_ || journal_.size() < compact_at_) return;
  try {
    begin_compaction();
  } catch (const std::exception& error) {
    give_up_compaction(error.what());
  }
}

// Between two batches the stores hold what the journal says, and of what will be behind it only
// kept records, which may be applied twice. So the snapshot is taken here, in memory; files and
// disks are the other thread's.
void Ledger::begin_compaction() {
  const auto snapshot = [this](const Journal::Visit& append) {
    const auto write = [&](const v1::JournalRecord& record) {
      try {
        append(record.SerializeAsString());
      } catch (const Error& error) {
        throw Error(error.kind(), error.reason(),
                    fmt::format("{}: {}", record_name(record), error.what()), error.metadata());
      }
    };
    // The requests first: what one of them changed is then in the store's records.
    for (const v1::JournalRecord& record : own_snapshot()) write(record);
    for (const JournaledStore* store : stores_) store->snapshot(write);
  };
  compaction_ = std::make_unique<Compaction>(journal_, snapshot);
  compaction_->thread = std::jthread([this, &mine = *compaction_](const std::stop_token& stop) {
    give_way_to_training();
    carry_out(mine, stop);
  });
}

void Ledger::carry_out(Compaction& compaction, const std::stop_token& stop) {
  try {
    tell(CompactionStage::kBegun);
    compaction.rewrite.write(stop);
    tell(CompactionStage::kWritten);
  } catch (...) {
    compaction.error = std::current_exception();
  }
  const std::lock_guard lock(mutex_);
  compaction.ended = true;
  work_.notify_one();
}

void Ledger::end_compaction() {
  try {
    if (compaction_->error) std::rethrow_exception(compaction_->error);
    journal_.switch_to(compaction_->rewrite);
  } catch (const std::exception& error) {
    return give_up_compaction(error.what());
  }
  const std::uint64_t live = compaction_->rewrite.live_size();
  compact_at_ = std::max(2 * live, live + kSmallJournal);
  compaction_.reset();
  tell(CompactionStage::kInPlace);
  compact_if_large();  // much may have been appended meanwhile
}

void Ledger::give_up_compaction(const char* error) {
  spdlog::warn("journal is not compacted: {}", error);
  compact_at_ = journal_.size() + std::max(journal_.size() / 8, kSmallJournal);
  compaction_.reset();
  tell(CompactionStage::kFailed);
}

void Ledger::tell(CompactionStage stage) const {
  if (on_compaction_) on_compaction_(stage);
}

std::vector<v1::JournalRecord> Ledger::own_snapshot() const {
  std::vector<v1::JournalRecord> records(1);
  const std::lock_guard lock(mutex_);
  records[0].set_epoch(epochs_.asked());
  records[0].set_journal_id(journal_id_);
  requests_.visit([&](const v1::RequestRecord& request) {
    *records.emplace_back().mutable_request() = request;
  });
  return records;
}

}  // namespace meshloom::control
