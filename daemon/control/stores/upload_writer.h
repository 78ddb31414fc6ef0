// SPDX-License-Identifier: Apache-2.0
// UploadWriter: the one stream that fills an upload.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "daemon/base/unique_fd.h"
#include "daemon/control/stores/digest_thread.h"
#include "daemon/control/stores/upload_store.h"

namespace meshloom::control {

/// Largest chunk that append() takes.
inline constexpr std::size_t kLargestChunk = 1 << 20;

/// Used by one thread.
class UploadWriter {
 public:
  ~UploadWriter();
  UploadWriter(const UploadWriter&) = delete;
  UploadWriter& operator=(const UploadWriter&) = delete;

  /// Bytes that came, committed ones included.
  std::int64_t position() const { return position_; }
  std::int64_t committed() const { return committed_; }

  /// OutOfRange (WRONG_OFFSET) unless offset is position(), or if the chunk passes the declared
  /// size; Aborted (CHUNK_CHECKSUM_MISMATCH); InvalidArgument (CHUNK_TOO_LARGE). The upload and
  /// what came before stay, but for a header that is no safetensors header (MALFORMED_SAFETENSORS):
  /// then the upload is gone.
  void append(std::int64_t offset, std::string data, std::uint32_t crc32c);
  /// All that came is on disk, and stays if this throws nothing.
  void commit();

 private:
  friend class UploadStore;
  UploadWriter(UploadStore& store, v1::StoredUpload upload, FileDigest known);
  void check_header();

  UploadStore& store_;
  const v1::StoredUpload upload_;
  const std::filesystem::path path_;
  base::UniqueFd file_;
  std::int64_t position_;
  std::int64_t committed_;
  bool header_checked_;
  bool discarded_ = false;
  std::unique_ptr<DigestThread> digest_;
};

}  // namespace meshloom::control
