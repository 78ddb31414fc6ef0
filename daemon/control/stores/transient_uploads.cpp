// SPDX-License-Identifier: Apache-2.0
#include "daemon/control/stores/transient_uploads.h"

#include <fcntl.h>
#include <unistd.h>

#include <random>
#include <vector>

#include "daemon/base/field_error.h"
#include "daemon/base/files.h"
#include "daemon/base/timestamp.h"
#include "daemon/control/access/ownership.h"
#include "daemon/control/stores/names.h"
#include "kernels/base/error.h"

namespace meshloom::control {
namespace {

[[noreturn]] void not_found(const std::string& id) {
  throw NotFound(fmt::format("upload \"{}\" does not exist: a transient one goes when a verb has "
                             "taken it, with its run and with the daemon",
                             id),
                 "UPLOAD_NOT_FOUND", {{"upload", id}});
}

[[noreturn]] void busy(const std::string& id) {
  throw Aborted(fmt::format("another call writes upload \"{}\"", id), "UPLOAD_BUSY",
                {{"upload", id}});
}

}  // namespace

class TransientUploads::Writer final : public ChunkWriter {
 public:
  Writer(TransientUploads& store, EntryPtr entry, std::unique_lock<std::mutex> writing)
      : store_(store), entry_(std::move(entry)), writing_(std::move(writing)) {
    const std::lock_guard lock(store_.mutex_);
    position_ = entry_->upload.committed_bytes();
    size_ = entry_->upload.size_bytes();
    name_ = entry_->upload.name();
  }

  void append(std::int64_t offset, std::string data, std::uint32_t crc32c) override {
    check_chunk(parse_upload_name(name_), size_, position_, offset, data, crc32c);
    base::write_all_at(entry_->file.get(), data, static_cast<std::uint64_t>(offset), name_);
    position_ += static_cast<std::int64_t>(data.size());
  }
  void commit() override {
    const std::lock_guard lock(store_.mutex_);
    entry_->upload.set_committed_bytes(position_);
    entry_->used = Clock::now();
  }
  std::int64_t committed() const override { return position_; }
  std::int64_t position() const override { return position_; }
  ~Writer() override { commit(); }

 private:
  TransientUploads& store_;
  const EntryPtr entry_;
  const std::unique_lock<std::mutex> writing_;
  std::string name_;
  std::int64_t position_ = 0, size_ = 0;
};

TransientUploads::TransientUploads(std::filesystem::path folder, const Limits& limits)
    : folder_(std::move(folder)), limits_(limits) {
  std::filesystem::create_directories(folder_);
}

std::optional<v1::Upload> TransientUploads::repeat(const std::string& client,
                                                   const RequestKey& key) const {
  if (key.id.empty()) return std::nullopt;
  const std::lock_guard lock(mutex_);
  for (const auto& [id, entry] : entries_) {
    if (entry->request.id != key.id || entry->upload.client() != client) continue;
    if (entry->request.digest != key.digest)
      throw InvalidArgument(
          fmt::format("request_id \"{}\" was given to another request", key.given_id()),
          "REQUEST_ID_REUSED", {{"field", "request_id"}});
    return entry->upload;
  }
  return std::nullopt;
}

v1::Upload TransientUploads::create(const std::string& client,
                                    const v1::CreateUploadRequest& request, const RequestKey& key) {
  if (request.size_bytes() < 1 || request.size_bytes() > kLargest)
    base::refuse_field("size_bytes", "must be in [1, {}], got {}", kLargest, request.size_bytes());
  if (!request.sha256().empty())
    base::refuse_field("sha256", "is of files that are kept; a transient upload has none");
  check_count(client);
  // Nobody guesses it, and none of an earlier daemon comes again.
  std::random_device random;
  const auto half = [&] { return static_cast<std::uint64_t>(random()); };
  const std::string id = fmt::format("transient-{:016x}", half() << 32 | half());
  auto entry = std::make_shared<Entry>();
  entry->request = key;
  const std::filesystem::path path = folder_ / id;
  entry->file = base::open_output(path, O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW, 0600);
  if (::unlink(path.c_str()) != 0) base::throw_io_error("cannot unlink", path, errno);
  v1::Upload& upload = entry->upload;
  upload.set_name(upload_resource(id));
  upload.set_file_name(request.file_name());
  upload.set_size_bytes(request.size_bytes());
  upload.set_state(v1::UPLOAD_STATE_RECEIVING);
  upload.set_client(client);
  upload.set_owner(owner_of_holder(client));
  upload.set_create_time(base::now_rfc3339());
  upload.set_kind(v1::UPLOAD_KIND_TRANSIENT);
  upload.set_run(request.run());
  check_count(client);  // others may have come while the file was made
  const std::lock_guard lock(mutex_);
  return entries_.emplace(id, std::move(entry)).first->second->upload;
}

std::optional<std::string> TransientUploads::client_of(const std::string& id) const {
  const std::lock_guard lock(mutex_);
  const auto found = entries_.find(id);
  return found == entries_.end() ? std::nullopt : std::optional(found->second->upload.client());
}

void TransientUploads::check_count(const std::string& client) const {
  const std::string owner = owner_of_holder(client);
  const std::lock_guard lock(mutex_);
  Limits::Taken taken;
  taken.all = static_cast<std::int64_t>(entries_.size());
  for (const auto& [id, entry] : entries_) taken.own += entry->upload.client() == client ? 1 : 0;
  limits_.check(LimitKind::kTransientUploads, owner, taken);
}

std::map<std::string, std::int64_t> TransientUploads::count_by_owner() const {
  const std::lock_guard lock(mutex_);
  std::map<std::string, std::int64_t> count;
  for (const auto& [id, entry] : entries_) ++count[entry->upload.owner()];
  return count;
}

TransientUploads::EntryPtr TransientUploads::find(const std::string& client,
                                                  const std::string& id) const {
  const auto found = entries_.find(id);
  if (found == entries_.end() || found->second->upload.client() != client) not_found(id);
  found->second->used = Clock::now();
  return found->second;
}

v1::Upload TransientUploads::get(const std::string& client, const std::string& id) {
  const std::lock_guard lock(mutex_);
  return find(client, id)->upload;
}

std::unique_ptr<ChunkWriter> TransientUploads::open_writer(const std::string& client,
                                                           const std::string& id) {
  EntryPtr entry;
  {
    const std::lock_guard lock(mutex_);
    entry = find(client, id);
    if (entry->upload.state() == v1::UPLOAD_STATE_COMPLETE)
      throw FailedPrecondition(fmt::format("upload \"{}\" is complete", id), "UPLOAD_COMPLETE",
                               {{"upload", id}});
  }
  std::unique_lock writing(entry->writing, std::try_to_lock);
  if (!writing) busy(id);
  return std::make_unique<Writer>(*this, std::move(entry), std::move(writing));
}

v1::Upload TransientUploads::finish(const std::string& client, const std::string& id) {
  EntryPtr entry;
  {
    const std::lock_guard lock(mutex_);
    entry = find(client, id);
  }
  const std::unique_lock writing(entry->writing, std::try_to_lock);
  if (!writing) busy(id);
  const std::lock_guard lock(mutex_);
  v1::Upload& upload = entry->upload;
  check_all_committed(id, upload.size_bytes(), upload.committed_bytes());
  upload.set_state(v1::UPLOAD_STATE_COMPLETE);
  return upload;
}

void TransientUploads::abort(const std::string& client, const std::string& id) {
  EntryPtr gone;  // its file is closed behind the lock
  const std::lock_guard lock(mutex_);
  gone = find(client, id);
  entries_.erase(id);
}

TransientUploads::EntryPtr TransientUploads::complete_of(const std::string& run,
                                                         const std::string& id) const {
  const auto found = entries_.find(id);
  if (found == entries_.end() || found->second->upload.run() != run) not_found(id);
  if (found->second->upload.state() != v1::UPLOAD_STATE_COMPLETE)
    throw FailedPrecondition(fmt::format("upload \"{}\" is not finished", id), "UPLOAD_INCOMPLETE",
                             {{"upload", id}});
  return found->second;
}

void TransientUploads::check_complete(const std::string& run, const std::string& id) const {
  const std::lock_guard lock(mutex_);
  complete_of(run, id)->used = Clock::now();
}

std::int64_t TransientUploads::size_of(const std::string& run, const std::string& id) const {
  const std::lock_guard lock(mutex_);
  const auto found = entries_.find(id);
  if (found == entries_.end() || found->second->upload.run() != run) return 0;
  return found->second->upload.size_bytes();
}

std::string TransientUploads::take(const std::string& run, const std::string& id) {
  EntryPtr entry;
  {
    const std::lock_guard lock(mutex_);
    entry = complete_of(run, id);
    entries_.erase(id);
  }
  std::string bytes(static_cast<std::size_t>(entry->upload.size_bytes()), '\0');
  for (std::size_t at = 0; at < bytes.size();) {
    const ssize_t got =
        ::pread(entry->file.get(), bytes.data() + at, bytes.size() - at, static_cast<off_t>(at));
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) base::throw_io_error("cannot read", folder_ / id, got < 0 ? errno : EIO);
    at += static_cast<std::size_t>(got);
  }
  return bytes;
}

template <typename Test>
void TransientUploads::drop_if(const Test& is_gone) {
  std::vector<EntryPtr> gone;  // their files are closed behind the lock
  const std::lock_guard lock(mutex_);
  std::erase_if(entries_, [&](const auto& item) {
    if (!is_gone(*item.second)) return false;
    gone.push_back(item.second);
    return true;
  });
}

void TransientUploads::drop_run(const std::string& run) {
  drop_if([&](const Entry& entry) { return entry.upload.run() == run; });
}

void TransientUploads::end_idle(std::chrono::seconds idle) {
  const auto before = Clock::now() - idle;
  drop_if([&](Entry& entry) {
    const std::unique_lock writing(entry.writing, std::try_to_lock);
    return writing && entry.used < before;
  });
}

TransientUploads::Use TransientUploads::use_of(const std::string& client) const {
  const std::lock_guard lock(mutex_);
  Use use;
  for (const auto& [id, entry] : entries_) {
    if (!client.empty() && entry->upload.client() != client) continue;
    use.bytes += entry->upload.size_bytes();
    ++use.uploads;
  }
  return use;
}

}  // namespace meshloom::control
