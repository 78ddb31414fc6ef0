// SPDX-License-Identifier: Apache-2.0
// UploadWriter: the one stream that fills an upload that is kept.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "daemon/base/unique_fd.h"
#include "daemon/control/stores/chunk_writer.h"
#include "daemon/control/stores/digest_thread.h"
#include "daemon/control/stores/upload_store.h"

namespace meshloom::control {

class UploadWriter final : public ChunkWriter {
 public:
  ~UploadWriter() override;
  UploadWriter(const UploadWriter&) = delete;
  UploadWriter& operator=(const UploadWriter&) = delete;

  std::int64_t committed() const override { return committed_; }
  std::int64_t position() const override { return position_; }
  /// Also InvalidArgument (MALFORMED_SAFETENSORS) for a header that is none: the upload is gone
  /// then.
  void append(std::int64_t offset, std::string data, std::uint32_t crc32c) override;
  /// What came is on disk.
  void commit() override;

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
