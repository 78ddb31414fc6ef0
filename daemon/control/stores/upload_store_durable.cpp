// SPDX-License-Identifier: Apache-2.0
// UploadStore: replay, what a restart makes of it, expiry and the collection of blobs.
#include <algorithm>
#include <utility>

#include "daemon/base/files.h"
#include "daemon/control/stores/checkpoint_files.h"
#include "daemon/control/stores/names.h"
#include "daemon/control/stores/upload_numbers.h"
#include "daemon/control/stores/upload_store.h"
#include "kernels/base/error.h"
#include "kernels/base/log.h"

namespace meshloom::control {
namespace {

/// How much uptime a death of the daemon may forget.
constexpr std::int64_t kUptimeSeconds = 600;

std::int64_t number_of(const std::string& id) {
  const auto number = upload_number(id);
  if (!number)
    throw DataLoss(fmt::format("journal: \"{}\" is the id of no upload", id), "JOURNAL_CORRUPT");
  return *number;
}

}  // namespace

std::int64_t UploadStore::uptime() const {
  const auto passed = std::chrono::steady_clock::now() - started_;
  return uptime_before_ + std::chrono::duration_cast<std::chrono::seconds>(passed).count();
}

void UploadStore::apply(const v1::JournalRecord& record) {
  uptime_written_ = std::max(uptime_written_, record.uptime_seconds());
  next_upload_ = std::max(next_upload_, record.next_upload());
  if (record.has_upload()) {
    const std::int64_t number = number_of(record.upload().id());
    next_upload_ = std::max(next_upload_, number + 1);
    Entry& target = entries_[number];
    count_upload(target.record, -1);
    target.record = record.upload();
    count_upload(target.record, 1);
    target.used = std::max(target.used, record.upload().used());
  }
  if (const std::string& id = record.deleted_upload(); !id.empty()) {
    if (const auto found = entries_.find(number_of(id)); found != entries_.end()) {
      count_upload(found->second.record, -1);
      entries_.erase(found);
    }
    removed_uploads_.insert(id);
  }
  if (record.has_blob()) {
    put_blob(record.blob().sha256(), &record.blob());
    removed_blobs_.erase(record.blob().sha256());
  }
  if (const std::string& sha256 = record.deleted_blob(); !sha256.empty()) {
    put_blob(sha256, nullptr);
    removed_blobs_.insert(sha256);
  }
}

void UploadStore::put_blob(const std::string& sha256, const v1::StoredBlob* blob) {
  if (const auto found = blobs_.find(sha256); found != blobs_.end())
    unneeded_.erase({found->second.unneeded_since(), sha256});
  if (blob == nullptr) {
    blobs_.erase(sha256);
    return;
  }
  blobs_[sha256] = *blob;
  if (blob->unneeded_since() > 0) unneeded_.emplace(blob->unneeded_since(), sha256);
  changed_.insert(sha256);
}

void UploadStore::count_upload(const v1::StoredUpload& upload, std::int64_t more) {
  if (upload.complete()) count_needs(upload.sha256(), more);
}

void UploadStore::count_needs(const std::string& sha256, std::int64_t more) {
  std::int64_t& needs = needs_[sha256];
  needs += more;
  if (needs == 0) needs_.erase(sha256);
  changed_.insert(sha256);
}

void UploadStore::add_needs(const std::string& sha256, std::int64_t more) {
  const std::lock_guard lock(mutex_);
  count_needs(sha256, more);
}

void UploadStore::remove_leftovers() {
  std::set<std::string> uploads = std::exchange(removed_uploads_, {});
  for (const auto& [number, item] : entries_)
    if (item.record.complete()) uploads.insert(item.record.id());
  for (const std::string& id : uploads)
    try_removal(upload_resource(id), [&] { folder_.remove_incoming(id); });
  for (const std::string& sha256 : std::exchange(removed_blobs_, {}))
    try_removal("blobs/" + sha256, [&] { folder_.remove_blob(sha256); });
}

void UploadStore::settle_after_restart() {
  uptime_before_ = uptime_written_;
  std::vector<std::string> lost;
  for (const auto& [sha256, blob] : blobs_)
    if (!folder_.has_blob(sha256, blob.size_bytes())) lost.push_back(sha256);
  for (const std::string& sha256 : lost) {
    spdlog::error("the uploaded bytes {} are gone from the state dir", sha256);
    put_blob(sha256, nullptr);
  }
  std::erase_if(entries_, [&](const auto& item) {
    const v1::StoredUpload& upload = item.second.record;
    const bool there = upload.complete() ? blobs_.count(upload.sha256()) > 0
                                         : std::filesystem::exists(folder_.incoming(upload.id()));
    if (there) return false;
    spdlog::error("upload {}: its file is gone from the state dir", upload.id());
    count_upload(upload, -1);
    return true;
  });
  remove_leftovers();
  /// What the journal says of blobs and uploads.
  class KnownHere final : public BlobFolder::Known {
   public:
    explicit KnownHere(const UploadStore& store) : store_(store) {}
    bool knows_blob(const std::string& sha256) const override {
      return store_.blobs_.contains(sha256);
    }
    bool knows_upload(const std::string& id) const override {
      const auto found = store_.entries_.find(upload_number(id).value_or(0));
      return found != store_.entries_.end() && !found->second.record.complete();
    }

   private:
    const UploadStore& store_;
  };
  folder_.sweep(KnownHere(*this));
}

void UploadStore::snapshot(const Ledger::Visit& append) const {
  std::vector<v1::JournalRecord> records(1);
  {
    const std::lock_guard lock(mutex_);
    records[0].set_uptime_seconds(std::max(uptime_written_, uptime()));
    records[0].set_next_upload(next_upload_);
    for (const std::string& id : removed_uploads_) records.emplace_back().set_deleted_upload(id);
    for (const std::string& sha256 : removed_blobs_)
      records.emplace_back().set_deleted_blob(sha256);
    for (const auto& item : entries_) *records.emplace_back().mutable_upload() = item.second.record;
    for (const auto& item : blobs_) *records.emplace_back().mutable_blob() = item.second;
  }
  for (const v1::JournalRecord& record : records) append(record);
}

void UploadStore::upkeep() {
  std::vector<std::string> idle;
  {
    const std::lock_guard lock(mutex_);
    const std::int64_t now = uptime();
    for (const auto& [number, item] : entries_)
      if (!item.leased && now - item.used >= limits_.idle_seconds())
        idle.push_back(item.record.id());
  }
  for (const std::string& id : idle) {
    spdlog::info("upload {}: nobody has used it for {} s, it ends", id, limits_.idle_seconds());
    discard(id);
  }
  transients_.end_idle(std::chrono::seconds(limits_.idle_seconds()));
  const std::set<std::string> digests = take_changed();
  try {
    for (const std::string& digest : digests) look_after_blob(digest);
  } catch (...) {
    const std::lock_guard lock(mutex_);
    changed_.insert(digests.begin(), digests.end());
    throw;
  }
  {
    const std::lock_guard lock(mutex_);
    if (uptime() - uptime_written_ < kUptimeSeconds) return;
  }
  commit(record_now(), Ledger::Need::kKept);
}

std::set<std::string> UploadStore::take_changed() {
  const std::lock_guard lock(mutex_);
  const std::int64_t now = uptime();
  for (auto item = unneeded_.begin();
       item != unneeded_.end() && now - item->first >= limits_.keep_blobs_seconds(); ++item)
    changed_.insert(item->second);
  return std::exchange(changed_, {});
}

void UploadStore::look_after_blob(const std::string& sha256) {
  const std::lock_guard deciding(change_mutex_);
  v1::JournalRecord record = record_now();
  bool collected = false;
  {
    const std::lock_guard lock(mutex_);
    const auto found = blobs_.find(sha256);
    if (found == blobs_.end()) return;
    const std::int64_t since = found->second.unneeded_since();
    const bool needed = needs_blob(sha256);
    if (needed == (since == 0)) {
      if (needed || uptime() - since < limits_.keep_blobs_seconds()) return;
      collected = true;
    }
    if (collected) {
      record.set_deleted_blob(sha256);
    } else {
      *record.mutable_blob() = found->second;
      record.mutable_blob()->set_unneeded_since(
          needed ? 0 : std::max<std::int64_t>(record.uptime_seconds(), 1));
    }
  }
  commit(record, collected ? Ledger::Need::kRefusableUrgent : Ledger::Need::kKept);
  if (!collected) return;
  folder_.remove_blob(sha256);
  {
    const std::lock_guard lock(mutex_);
    removed_blobs_.erase(sha256);
  }
  spdlog::info("the uploaded bytes {} were not needed for {} s and are removed", sha256,
               limits_.keep_blobs_seconds());
}

}  // namespace meshloom::control
