// SPDX-License-Identifier: Apache-2.0
// UploadStore: replay, what a restart makes of it, expiry and the collection of blobs.
#include <algorithm>

#include "daemon/base/files.h"
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
    target.record = record.upload();
    target.used = std::max(target.used, record.upload().used());
  }
  if (!record.deleted_upload().empty()) entries_.erase(number_of(record.deleted_upload()));
  if (record.has_blob()) blobs_[record.blob().sha256()] = record.blob();
  if (!record.deleted_blob().empty()) blobs_.erase(record.deleted_blob());
}

void UploadStore::settle_after_restart() {
  const std::lock_guard lock(mutex_);
  uptime_before_ = uptime_written_;
  std::erase_if(blobs_, [&](const auto& item) {
    const bool lost = !folder_.has_blob(item.first, item.second.size_bytes());
    if (lost) spdlog::error("the uploaded bytes {} are gone from the state dir", item.first);
    return lost;
  });
  std::erase_if(entries_, [&](const auto& item) {
    const v1::StoredUpload& upload = item.second.record;
    const bool there = upload.complete() ? blobs_.count(upload.sha256()) > 0
                                         : std::filesystem::exists(folder_.incoming(upload.id()));
    if (!there) spdlog::error("upload {}: its file is gone from the state dir", upload.id());
    return !there;
  });
  folder_.sweep([&](const std::string& digest) { return blobs_.count(digest) > 0; },
                [&](const std::string& id) {
                  const auto found = entries_.find(upload_number(id).value_or(0));
                  return found != entries_.end() && !found->second.record.complete();
                });
}

void UploadStore::snapshot(const Ledger::Visit& append) const {
  std::vector<v1::JournalRecord> records(1);
  {
    const std::lock_guard lock(mutex_);
    records[0].set_uptime_seconds(std::max(uptime_written_, uptime()));
    records[0].set_next_upload(next_upload_);
    for (const auto& item : entries_) *records.emplace_back().mutable_upload() = item.second.record;
    for (const auto& item : blobs_) *records.emplace_back().mutable_blob() = item.second;
  }
  for (const v1::JournalRecord& record : records) append(record);
}

void UploadStore::upkeep() {
  std::vector<std::string> idle;
  {
    const std::lock_guard lock(mutex_);
    for (const auto& [number, item] : entries_)
      if (!item.leased && uptime() - item.used >= limits_.idle_seconds())
        idle.push_back(item.record.id());
  }
  for (const std::string& id : idle) {
    spdlog::info("upload {}: nobody has used it for {} s, it ends", id, limits_.idle_seconds());
    discard(id);
  }
  transients_.end_idle(std::chrono::seconds(limits_.idle_seconds()));
  std::vector<std::string> digests;
  {
    const std::lock_guard lock(mutex_);
    for (const auto& item : blobs_) digests.push_back(item.first);
  }
  for (const std::string& digest : digests) look_after_blob(digest);
  {
    const std::lock_guard lock(mutex_);
    if (uptime() - uptime_written_ < kUptimeSeconds) return;
  }
  commit(record_now(), Ledger::Need::kKept);
}

bool UploadStore::needs_blob(const std::string& sha256) const {
  const bool uploaded = std::any_of(entries_.begin(), entries_.end(), [&](const auto& item) {
    return item.second.record.complete() && item.second.record.sha256() == sha256;
  });
  return uploaded || other_needs_(sha256);
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
  spdlog::info("the uploaded bytes {} were not needed for {} s and are removed", sha256,
               limits_.keep_blobs_seconds());
}

}  // namespace meshloom::control
