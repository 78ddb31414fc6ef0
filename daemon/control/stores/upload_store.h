// SPDX-License-Identifier: Apache-2.0
// UploadStore: files that clients send, durable piece by piece, and kept by their content.
#pragma once

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "daemon/base/input_file.h"
#include "daemon/control/host/uptime_clock.h"
#include "daemon/control/stores/blob_folder.h"
#include "daemon/control/stores/digest_thread.h"
#include "daemon/control/stores/journaled_store.h"
#include "daemon/control/stores/request_key.h"
#include "daemon/control/stores/transient_uploads.h"
#include "v1/config.pb.h"
#include "v1/stored.pb.h"
#include "v1/upload_service.pb.h"

namespace meshloom::control {

/// Transient uploads are asked for as any other and count against the same quotas; they are not
/// listed. All methods may be called from any thread. Ids are names without "uploads/". A client
/// sees its own uploads: those of others are NotFound (UPLOAD_NOT_FOUND). What a method says to be
/// so is durable when it returns, but for transient ones.
class UploadStore final : public JournaledStore, public UptimeClock {
 public:
  struct Options {
    std::filesystem::path folder;  ///< for a BlobFolder
    v1::UploadConfig limits;       ///< all fields set: with_upload_defaults()
    Limits of_owners = Limits();   ///< of transient ones
  };
  explicit UploadStore(const Options& options);
  ~UploadStore() override;

  /// A repeat gets the first upload. Throws InvalidArgument with the field, ResourceExhausted
  /// (QUOTA_EXCEEDED, DISK_FULL).
  v1::Upload create(const std::string& client, const v1::CreateUploadRequest& request,
                    const RequestKey& key);
  v1::Upload get(const std::string& client, const std::string& id);
  /// Up to `size` of the client's after position (0 at first), oldest first, and the position to go
  /// on from, 0 at the end.
  /// Those of all clients where `client` is empty.
  std::pair<std::vector<v1::Upload>, std::int64_t> list(const std::string& client,
                                                        std::int64_t position, int size) const;
  /// Whose it is, as the other methods take it; nothing if there is no such upload.
  std::optional<std::string> client_of(const std::string& id) const;
  /// The one writer. Aborted (UPLOAD_BUSY) if there is another, FailedPrecondition
  /// (UPLOAD_COMPLETE). Ends before the store.
  std::unique_ptr<ChunkWriter> open_writer(const std::string& client, const std::string& id);
  /// Compares size and digest; what is complete stays so. FailedPrecondition (UPLOAD_INCOMPLETE),
  /// Aborted (UPLOAD_BUSY); InvalidArgument (DIGEST_MISMATCH) after which the upload is gone.
  v1::Upload finish(const std::string& client, const std::string& id);
  void abort(const std::string& client, const std::string& id, const RequestKey& key);

  /// An upload as its bytes lie on disk.
  struct Content {
    v1::StoredUpload upload;
    std::filesystem::path path;  ///< of the declared size, right up to committed_bytes
  };
  Content content(const std::string& client, const std::string& id);
  /// A complete upload, open: its bytes can be read whatever becomes of it.
  struct OpenContent {
    v1::StoredUpload upload;
    base::InputFile file;
  };
  /// Throws FailedPrecondition (UPLOAD_INCOMPLETE; UPLOAD_TRANSIENT).
  OpenContent open_content(const std::string& client, const std::string& id);
  /// Requests that use an upload and leave it as it is: whether one was noted, until the upload is
  /// gone. Throws InvalidArgument (REQUEST_ID_REUSED).
  bool is_noted(const RequestKey& key) const { return ledger().find_request(key).has_value(); }
  void note_request(const std::string& id, const RequestKey& key);
  const BlobFolder& blobs() const { return folder_; }
  TransientUploads& transients() { return transients_; }

  /// That many more (fewer: below 0) than so far need the bytes of a digest beside uploads. May be
  /// called before the bytes are known, as in a replay.
  void add_needs(const std::string& sha256, std::int64_t more);
  /// Ends idle uploads, collects blobs that nothing has needed for long, and writes the uptime down
  /// now and then. Called every second or so.
  void upkeep();
  /// Seconds in which daemons were up on this state dir.
  std::int64_t uptime() const override;

  void snapshot(const Ledger::Visit& append) const override;

 private:
  friend class UploadWriter;
  struct Entry {
    v1::StoredUpload record;
    std::int64_t used = 0;
    bool leased = false;               ///< somebody writes or finishes it
    std::optional<FileDigest> digest;  ///< of what is committed, if it is known
  };

  void apply(const v1::JournalRecord& record) override;
  void settle_after_restart() override;
  void remove_leftovers();  ///< after the replay

  // With mutex_ held.
  Entry& entry(const std::string& client, const std::string& id);
  v1::Upload told(const Entry& entry) const;
  void count_needs(const std::string& sha256, std::int64_t more);
  void count_upload(const v1::StoredUpload& upload, std::int64_t more);
  bool needs_blob(const std::string& sha256) const { return needs_.contains(sha256); }
  /// Takes the place of what was known of it; null: forgets it.
  void put_blob(const std::string& sha256, const v1::StoredBlob* blob);
  /// Digests of blobs that may have to be collected, or told that they are needed or not.
  std::set<std::string> take_changed();
  void check_quota(const std::string& client, std::int64_t size) const;

  /// The record of a new upload; checks the quotas.
  v1::JournalRecord begin(v1::StoredUpload upload);
  v1::Upload create_transient(const std::string& client, const v1::CreateUploadRequest& request,
                              const RequestKey& key);
  void check_room(std::int64_t bytes) const;
  std::optional<v1::Upload> repeat(const std::string& client, const RequestKey& key);
  v1::JournalRecord record_now() const;
  std::pair<v1::StoredUpload, FileDigest> lease(const std::string& client, const std::string& id);
  void unlease(const std::string& id, std::optional<FileDigest> digest);
  /// Of a writer: bytes up to here are on disk.
  void commit_bytes(const std::string& id, std::int64_t committed);
  void discard(const std::string& id, const RequestKey& key = {});
  void complete(const v1::StoredUpload& upload, const std::string& sha256);
  void look_after_blob(const std::string& sha256);

  const v1::UploadConfig limits_;
  const BlobFolder folder_;
  TransientUploads transients_;
  std::map<std::int64_t, Entry> entries_;  ///< by number
  std::map<std::string, v1::StoredBlob> blobs_;
  // So that upkeep() looks at what has changed and what is due alone.
  std::unordered_map<std::string, std::int64_t> needs_;  ///< by digest: complete uploads and others
  std::set<std::string> changed_;                        ///< blobs since the last look
  std::set<std::pair<std::int64_t, std::string>> unneeded_;  ///< blobs by unneeded_since
  // Gone, but for what may be left of their files.
  std::set<std::string> removed_uploads_, removed_blobs_;
  std::int64_t next_upload_ = 1;
  std::int64_t uptime_before_ = 0;  ///< of earlier daemons
  std::int64_t uptime_written_ = 0;
  const std::chrono::steady_clock::time_point started_ = std::chrono::steady_clock::now();
};

/// What is not given gets its default. Throws InvalidArgument for negative limits.
v1::UploadConfig with_upload_defaults(v1::UploadConfig limits);

}  // namespace meshloom::control
