// SPDX-License-Identifier: Apache-2.0
// TransientUploads: what verbs of runs take that is too large for a request.
#pragma once

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>

#include "daemon/base/unique_fd.h"
#include "daemon/control/access/limits.h"
#include "daemon/control/stores/chunk_writer.h"
#include "daemon/control/stores/request_key.h"
#include "v1/upload_service.pb.h"

namespace meshloom::control {

/// Files without a name on the daemon's disk, which go with their last user: no sync, no digest, no
/// journal. All methods may be called from any thread. A client sees its own.
class TransientUploads {
 public:
  using Clock = std::chrono::steady_clock;

  /// Bytes of the largest.
  static constexpr std::int64_t kLargest = std::int64_t{1} << 30;
  /// The folder is made. Each upload is an open file, so that there are few: `limits`.
  explicit TransientUploads(std::filesystem::path folder, const Limits& limits = Limits());

  /// Whether an id is that of a transient upload.
  static bool is_id(const std::string& id) { return id.starts_with("transient-"); }

  /// What the first request with this key has made. Throws InvalidArgument (REQUEST_ID_REUSED) if
  /// that was another one.
  std::optional<v1::Upload> repeat(const std::string& client, const RequestKey& key) const;
  /// `request.run` is the name of a run that the caller has checked. Throws InvalidArgument with
  /// the field, ResourceExhausted (QUOTA_EXCEEDED).
  v1::Upload create(const std::string& client, const v1::CreateUploadRequest& request,
                    const RequestKey& key);
  v1::Upload get(const std::string& client, const std::string& id);
  std::optional<std::string> client_of(const std::string& id) const;
  /// Aborted (UPLOAD_BUSY) if there is another, FailedPrecondition (UPLOAD_COMPLETE).
  std::unique_ptr<ChunkWriter> open_writer(const std::string& client, const std::string& id);
  /// FailedPrecondition (UPLOAD_INCOMPLETE), Aborted (UPLOAD_BUSY).
  v1::Upload finish(const std::string& client, const std::string& id);
  void abort(const std::string& client, const std::string& id);

  /// Throws NotFound (UPLOAD_NOT_FOUND) unless it is of this run, FailedPrecondition
  /// (UPLOAD_INCOMPLETE) unless it is finished.
  void check_complete(const std::string& run, const std::string& id) const;
  /// As declared; 0 unless it is of this run.
  std::int64_t size_of(const std::string& run, const std::string& id) const;
  /// The bytes of a complete upload, which is gone then. Throws as check_complete.
  std::string take(const std::string& run, const std::string& id);
  /// Those of a run that has ended.
  void drop_run(const std::string& run);
  void end_idle(std::chrono::seconds idle);

  struct Use {
    std::int64_t bytes = 0, uploads = 0;
  };
  /// As declared; of all clients for an empty name.
  Use use_of(const std::string& client) const;
  /// How many there are, by owner.
  std::map<std::string, std::int64_t> count_by_owner() const;

 private:
  class Writer;
  struct Entry {
    v1::Upload upload;
    RequestKey request;
    base::UniqueFd file;
    std::mutex writing;  ///< held by the one writer
    Clock::time_point used = Clock::now();
  };
  using EntryPtr = std::shared_ptr<Entry>;  ///< a writer outlives an abort

  EntryPtr find(const std::string& client, const std::string& id) const;
  EntryPtr complete_of(const std::string& run, const std::string& id) const;
  /// Throws ResourceExhausted (QUOTA_EXCEEDED). Without the mutex.
  void check_count(const std::string& client) const;
  template <typename Test>
  void drop_if(const Test& is_gone);

  const std::filesystem::path folder_;
  const Limits limits_;
  mutable std::mutex mutex_;  ///< not held while files are made or closed
  std::map<std::string, EntryPtr> entries_;
};

}  // namespace meshloom::control
