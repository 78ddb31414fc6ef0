// SPDX-License-Identifier: Apache-2.0
// UploadStore: what clients ask for. Replay and upkeep: upload_store_durable.cpp.
#include "daemon/control/stores/upload_store.h"
#include "daemon/control/access/ownership.h"

#include <algorithm>

#include "daemon/base/files.h"
#include "daemon/base/timestamp.h"
#include "daemon/control/stores/names.h"
#include "daemon/control/stores/page_room.h"
#include "daemon/control/stores/request_log.h"
#include "daemon/control/stores/upload_numbers.h"
#include "daemon/control/stores/upload_writer.h"
#include "daemon/train/files/safetensors.h"
#include "kernels/base/error.h"
#include "kernels/base/log.h"

namespace meshloom::control {
namespace {

v1::StoredUpload checked(const std::string& client, const v1::CreateUploadRequest& request) {
  if (!is_file_name(request.file_name()))
    throw InvalidArgument(
        fmt::format("file_name \"{}\" is not valid, expected [A-Za-z0-9_][A-Za-z0-9._-]{{0,127}}",
                    request.file_name().substr(0, 80)),
        "NAME_INVALID", {{"field", "file_name"}});
  if (request.size_bytes() < 0)
    throw InvalidArgument(fmt::format("size_bytes is {}, expected 0 or more", request.size_bytes()),
                          "INVALID_ARGUMENT", {{"field", "size_bytes"}});
  if (!base::is_sha256(request.sha256()))
    throw InvalidArgument(
        fmt::format("sha256 \"{}\" is not valid, expected 64 lower-case hexadecimal digits",
                    request.sha256().substr(0, 80)),
        "INVALID_ARGUMENT", {{"field", "sha256"}});
  if (!v1::UploadKind_IsValid(request.kind()))
    throw InvalidArgument(
        fmt::format("kind has the unknown value {}", static_cast<int>(request.kind())),
        "INVALID_ARGUMENT", {{"field", "kind"}});
  if (!request.run().empty())
    throw InvalidArgument("run is of transient uploads: a file that is kept belongs to no run",
                          "INVALID_ARGUMENT", {{"field", "run"}});
  v1::StoredUpload upload;
  upload.set_client(client);
  upload.set_file_name(request.file_name());
  upload.set_size_bytes(request.size_bytes());
  upload.set_sha256(request.sha256());
  upload.set_create_time(base::now_rfc3339());
  return upload;
}

constexpr int kMostSenders = 100;  // of a blob, the newest: others send its bytes again

/// Whether a client has sent these bytes itself.
bool is_sender(const v1::StoredBlob& blob, const std::string& client) {
  const auto& clients = blob.clients();
  return std::find(clients.begin(), clients.end(), client) != clients.end();
}

/// Whether the whole file is what it was declared to be. Throws what is wrong with it.
void check_bytes(const v1::StoredUpload& upload, const std::filesystem::path& file,
                 const std::string& sha256) {
  if (sha256 != upload.sha256())
    throw InvalidArgument(
        fmt::format("upload \"{}\" has SHA-256 {}, declared was {}: it is discarded", upload.id(),
                    sha256, upload.sha256()),
        "DIGEST_MISMATCH", {{"upload", upload.id()}, {"sha256", sha256}});
  if (upload.file_name().ends_with(".safetensors"))
    train::SafetensorsFile::open(file, upload.file_name());
}

[[noreturn]] void aborted_meanwhile(const std::string& id) {
  throw Aborted(fmt::format("upload \"{}\" was aborted meanwhile", id), "UPLOAD_ABORTED",
                {{"upload", id}});
}

[[noreturn]] void quota_exceeded(const std::string& what, std::int64_t used, std::int64_t asked,
                                 std::int64_t limit) {
  throw ResourceExhausted(
      fmt::format("{}: {} are taken and {} are asked for, {} are allowed; finished uploads that no "
                  "model needs go when they are aborted and their bytes after a time",
                  what, used, asked, limit),
      "QUOTA_EXCEEDED",
      {{"used", std::to_string(used)}, {"limit", std::to_string(limit)}, {"what", what}});
}

}  // namespace

v1::UploadConfig with_upload_defaults(v1::UploadConfig limits) {
  constexpr std::int64_t kDay = 86'400;
  constexpr std::int64_t kGiB = std::int64_t{1} << 30;
  if (!limits.has_client_bytes()) limits.set_client_bytes(256 * kGiB);
  if (!limits.has_total_bytes()) limits.set_total_bytes(1024 * kGiB);
  if (!limits.has_client_uploads()) limits.set_client_uploads(1000);
  if (!limits.has_total_uploads()) limits.set_total_uploads(10'000);
  if (!limits.has_idle_seconds()) limits.set_idle_seconds(kDay);
  if (!limits.has_keep_blobs_seconds()) limits.set_keep_blobs_seconds(7 * kDay);
  if (!limits.has_message_seconds()) limits.set_message_seconds(30);
  const auto check_least = [](const char* name, std::int64_t value, std::int64_t least) {
    check(value >= least, "uploads.{} is {}, expected {} or more", name, value, least);
  };
  check_least("client_bytes", limits.client_bytes(), 0);
  check_least("total_bytes", limits.total_bytes(), 0);
  check_least("client_uploads", limits.client_uploads(), 0);
  check_least("total_uploads", limits.total_uploads(), 0);
  check_least("idle_seconds", limits.idle_seconds(), 1);
  check_least("keep_blobs_seconds", limits.keep_blobs_seconds(), 0);
  check_least("message_seconds", limits.message_seconds(), 1);
  return limits;
}

UploadStore::UploadStore(const Options& options)
    : limits_(options.limits),
      folder_(options.folder),
      transients_(options.folder / "incoming", options.of_owners) {}

UploadStore::~UploadStore() = default;

UploadStore::Entry& UploadStore::entry(const std::string& client, const std::string& id) {
  const auto found = entries_.find(upload_number(id).value_or(0));
  if (found == entries_.end() || found->second.record.client() != client)
    throw NotFound(fmt::format("upload \"{}\" does not exist", id), "UPLOAD_NOT_FOUND",
                   {{"upload", id}});
  found->second.used = uptime();
  return found->second;
}

v1::Upload UploadStore::told(const Entry& entry) const {
  const v1::StoredUpload& record = entry.record;
  v1::Upload upload;
  upload.set_name(upload_resource(record.id()));
  upload.set_file_name(record.file_name());
  upload.set_size_bytes(record.size_bytes());
  upload.set_sha256(record.sha256());
  upload.set_committed_bytes(record.committed_bytes());
  upload.set_state(record.complete() ? v1::UPLOAD_STATE_COMPLETE : v1::UPLOAD_STATE_RECEIVING);
  upload.set_client(record.client());
  upload.set_owner(owner_of_holder(record.client()));
  upload.set_create_time(record.create_time());
  return upload;
}

v1::JournalRecord UploadStore::record_now() const {
  v1::JournalRecord record;
  record.set_uptime_seconds(uptime());
  return record;
}

std::optional<v1::Upload> UploadStore::repeat(const std::string& client, const RequestKey& key) {
  const auto first = ledger().find_request(key);
  if (!first) return std::nullopt;
  const std::string id = parse_upload_name(first->resource());
  if (first->gone())
    throw NotFound(fmt::format("upload \"{}\" of this request is gone", id), "UPLOAD_NOT_FOUND",
                   {{"upload", id}});
  return get(client, id);
}

void UploadStore::check_quota(const std::string& client, std::int64_t size) const {
  const TransientUploads::Use own_brief = transients_.use_of(client),
                              brief = transients_.use_of("");
  std::int64_t own_bytes = own_brief.bytes, all_bytes = brief.bytes;
  std::int64_t own_uploads = own_brief.uploads;
  for (const auto& [number, item] : entries_) {
    const bool own = item.record.client() == client;
    own_uploads += own ? 1 : 0;
    if (item.record.complete()) continue;  // counted as a blob
    all_bytes += item.record.size_bytes();
    own_bytes += own ? item.record.size_bytes() : 0;
  }
  for (const auto& [digest, blob] : blobs_) {
    all_bytes += blob.size_bytes();
    own_bytes += is_sender(blob, client) ? blob.size_bytes() : 0;
  }
  if (own_uploads >= limits_.client_uploads())
    quota_exceeded("uploads of this client", own_uploads, 1, limits_.client_uploads());
  const auto uploads = static_cast<std::int64_t>(entries_.size()) + brief.uploads;
  if (uploads >= limits_.total_uploads())
    quota_exceeded("uploads of all clients", uploads, 1, limits_.total_uploads());
  if (size > limits_.client_bytes() - own_bytes)
    quota_exceeded("bytes of this client", own_bytes, size, limits_.client_bytes());
  if (size > limits_.total_bytes() - all_bytes)
    quota_exceeded("bytes of all clients", all_bytes, size, limits_.total_bytes());
}

v1::JournalRecord UploadStore::begin(v1::StoredUpload upload) {
  v1::JournalRecord record = record_now();
  const std::lock_guard lock(mutex_);
  const auto blob = blobs_.find(upload.sha256());
  upload.set_complete(blob != blobs_.end() && blob->second.size_bytes() == upload.size_bytes() &&
                      is_sender(blob->second, upload.client()));
  check_quota(upload.client(), upload.complete() ? 0 : upload.size_bytes());
  upload.set_id(upload_id(next_upload_));
  upload.set_committed_bytes(upload.complete() ? upload.size_bytes() : 0);
  upload.set_used(record.uptime_seconds());
  record.set_next_upload(next_upload_ + 1);
  *record.mutable_upload() = std::move(upload);
  return record;
}

void UploadStore::check_room(std::int64_t bytes) const {
  const std::int64_t room = folder_.available_bytes();
  if (bytes > room)
    throw ResourceExhausted(
        fmt::format("the file has {} bytes, the daemon's disk has room for {}", bytes, room),
        "DISK_FULL", {{"available_bytes", std::to_string(room)}});
}

v1::Upload UploadStore::create_transient(const std::string& client,
                                         const v1::CreateUploadRequest& request,
                                         const RequestKey& key) {
  const std::lock_guard deciding(change_mutex_);
  if (auto first = transients_.repeat(client, key)) return *first;
  {
    const std::lock_guard lock(mutex_);
    check_quota(client, request.size_bytes());
  }
  check_room(request.size_bytes());
  return transients_.create(client, request, key);
}

v1::Upload UploadStore::create(const std::string& client, const v1::CreateUploadRequest& request,
                               const RequestKey& key) {
  if (request.kind() == v1::UPLOAD_KIND_TRANSIENT) return create_transient(client, request, key);
  const v1::StoredUpload asked = checked(client, request);
  const std::lock_guard deciding(change_mutex_);
  if (auto first = repeat(client, key)) return *first;
  v1::JournalRecord record = begin(asked);
  const std::string id = record.upload().id();
  if (const auto answered = RequestLog::record_of(key, upload_resource(id)))
    *record.mutable_request() = *answered;
  if (!record.upload().complete()) {
    check_room(record.upload().size_bytes());
    folder_.create_incoming(id, record.upload().size_bytes());
  }
  try {
    commit(record);
  } catch (...) {
    folder_.remove_incoming(id);
    throw;
  }
  return get(client, id);
}

v1::Upload UploadStore::get(const std::string& client, const std::string& id) {
  if (TransientUploads::is_id(id)) return transients_.get(client, id);
  const std::lock_guard lock(mutex_);
  return told(entry(client, id));
}

std::pair<std::vector<v1::Upload>, std::int64_t> UploadStore::list(const std::string& client,
                                                                   std::int64_t position,
                                                                   int size) const {
  const std::lock_guard lock(mutex_);
  return page_of(entries_, position, size, [&](const Entry& item) {
    return client.empty() || item.record.client() == client ? std::optional(told(item))
                                                            : std::nullopt;
  });
}

std::optional<std::string> UploadStore::client_of(const std::string& id) const {
  if (TransientUploads::is_id(id)) return transients_.client_of(id);
  const std::lock_guard lock(mutex_);
  const auto found = entries_.find(upload_number(id).value_or(0));
  return found == entries_.end() ? std::nullopt : std::optional(found->second.record.client());
}

UploadStore::Content UploadStore::content(const std::string& client, const std::string& id) {
  const std::lock_guard lock(mutex_);
  const v1::StoredUpload& upload = entry(client, id).record;
  return {upload, upload.complete() ? folder_.blob(upload.sha256()) : folder_.incoming(id)};
}

UploadStore::OpenContent UploadStore::open_content(const std::string& client,
                                                   const std::string& id) {
  if (TransientUploads::is_id(id)) {
    transients_.get(client, id);
    throw FailedPrecondition(
        fmt::format("upload \"{}\" is transient: a verb of its run takes it, and nothing else", id),
        "UPLOAD_TRANSIENT", {{"upload", id}});
  }
  v1::StoredUpload upload;
  {
    const std::lock_guard lock(mutex_);
    upload = entry(client, id).record;
  }
  check_all_committed(id, upload.size_bytes(), upload.committed_bytes());
  if (!upload.complete())
    throw FailedPrecondition(
        fmt::format("upload \"{}\" has all of its bytes and was not finished", id),
        "UPLOAD_INCOMPLETE",
        {{"upload", id}, {"committed_bytes", std::to_string(upload.committed_bytes())}});
  try {
    base::InputFile file(folder_.blob(upload.sha256()));
    return {std::move(upload), std::move(file)};
  } catch (const Error&) {
    // Bytes are collected once no upload is left that has them: such a one is not found.
    get(client, id);
    throw;
  }
}

void UploadStore::note_request(const std::string& id, const RequestKey& key) {
  const auto answered = RequestLog::record_of(key, upload_resource(id));
  if (!answered) return;
  const std::lock_guard deciding(change_mutex_);
  v1::JournalRecord record = record_now();
  *record.mutable_request() = *answered;
  {
    const std::lock_guard lock(mutex_);
    record.mutable_request()->set_gone(entries_.count(upload_number(id).value_or(0)) == 0);
  }
  commit(record, Ledger::Need::kKept);
}

std::pair<v1::StoredUpload, FileDigest> UploadStore::lease(const std::string& client,
                                                           const std::string& id) {
  const std::lock_guard lock(mutex_);
  Entry& leased = entry(client, id);
  if (leased.leased)
    throw Aborted(fmt::format("another call writes upload \"{}\" or finishes it", id),
                  "UPLOAD_BUSY", {{"upload", id}});
  leased.leased = true;
  FileDigest known;
  if (leased.digest) known = std::move(*leased.digest);
  leased.digest.reset();
  return {leased.record, std::move(known)};
}

void UploadStore::unlease(const std::string& id, std::optional<FileDigest> digest) {
  const std::lock_guard lock(mutex_);
  const auto found = entries_.find(upload_number(id).value_or(0));
  if (found == entries_.end()) return;
  found->second.leased = false;
  found->second.digest = std::move(digest);
  found->second.used = uptime();
}

std::unique_ptr<ChunkWriter> UploadStore::open_writer(const std::string& client,
                                                      const std::string& id) {
  if (TransientUploads::is_id(id)) return transients_.open_writer(client, id);
  auto [upload, known] = lease(client, id);
  try {
    if (upload.complete())
      throw FailedPrecondition(fmt::format("upload \"{}\" is complete", id), "UPLOAD_COMPLETE",
                               {{"upload", id}});
    return std::unique_ptr<ChunkWriter>(new UploadWriter(*this, upload, std::move(known)));
  } catch (...) {
    unlease(id, std::nullopt);
    throw;
  }
}

void UploadStore::commit_bytes(const std::string& id, std::int64_t committed) {
  const std::lock_guard deciding(change_mutex_);
  v1::JournalRecord record = record_now();
  {
    const std::lock_guard lock(mutex_);
    const auto found = entries_.find(upload_number(id).value_or(0));
    if (found == entries_.end()) aborted_meanwhile(id);
    *record.mutable_upload() = found->second.record;
  }
  record.mutable_upload()->set_committed_bytes(committed);
  record.mutable_upload()->set_used(record.uptime_seconds());
  commit(record);
}

v1::Upload UploadStore::finish(const std::string& client, const std::string& id) {
  if (TransientUploads::is_id(id)) return transients_.finish(client, id);
  auto [upload, known] = lease(client, id);
  std::optional<FileDigest> digest;
  try {
    if (!upload.complete()) {
      check_all_committed(id, upload.size_bytes(), upload.committed_bytes());
      digest = DigestThread(folder_.incoming(id), std::move(known), upload.size_bytes()).finish();
      complete(upload, digest->sha256.hex());
    }
  } catch (...) {
    unlease(id, std::move(digest));
    throw;
  }
  unlease(id, std::nullopt);
  return get(client, id);
}

void UploadStore::complete(const v1::StoredUpload& upload, const std::string& sha256) {
  const std::string& id = upload.id();
  try {
    check_bytes(upload, folder_.incoming(id), sha256);
  } catch (const InvalidArgument&) {
    discard(id);
    throw;
  }
  // Against a collection of the same bytes: it comes before and they are kept anew, or it sees
  // that they are needed.
  const std::lock_guard deciding(change_mutex_);
  v1::JournalRecord record = record_now();
  {
    const std::lock_guard lock(mutex_);
    if (entries_.count(upload_number(id).value_or(0)) == 0) aborted_meanwhile(id);
    const auto known = blobs_.find(sha256);
    if (known != blobs_.end()) *record.mutable_blob() = known->second;
  }
  v1::StoredBlob& blob = *record.mutable_blob();
  const bool fresh = blob.sha256().empty();
  blob.set_sha256(sha256);
  blob.set_size_bytes(upload.size_bytes());
  blob.set_unneeded_since(0);
  if (!is_sender(blob, upload.client())) blob.add_clients(upload.client());
  if (blob.clients_size() > kMostSenders) blob.mutable_clients()->DeleteSubrange(0, 1);
  *record.mutable_upload() = upload;
  record.mutable_upload()->set_complete(true);
  record.mutable_upload()->set_used(record.uptime_seconds());
  folder_.keep(id, sha256);
  try {
    commit(record, Ledger::Need::kRefusableUrgent);
  } catch (...) {
    if (fresh) folder_.remove_blob(sha256);
    throw;
  }
  folder_.remove_incoming(id);
  spdlog::info("upload {}: {} is complete, {} bytes", id, upload.file_name(), upload.size_bytes());
}

void UploadStore::discard(const std::string& id, const RequestKey& key) {
  const std::lock_guard deciding(change_mutex_);
  {
    const std::lock_guard lock(mutex_);
    if (entries_.count(upload_number(id).value_or(0)) == 0) return;
  }
  v1::JournalRecord record = record_now();
  record.set_deleted_upload(id);
  if (auto request = RequestLog::record_of(key, upload_resource(id))) {
    request->set_gone(true);
    *record.mutable_request() = *request;
  }
  commit(record, Ledger::Need::kRefusableUrgent);
  folder_.remove_incoming(id);
  const std::lock_guard lock(mutex_);
  removed_uploads_.erase(id);
}

void UploadStore::abort(const std::string& client, const std::string& id, const RequestKey& key) {
  if (TransientUploads::is_id(id)) return transients_.abort(client, id);
  if (ledger().find_request(key)) return;
  get(client, id);
  discard(id, key);
}

}  // namespace meshloom::control
