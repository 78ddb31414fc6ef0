// SPDX-License-Identifier: Apache-2.0
#include "daemon/control/stores/upload_writer.h"

#include "daemon/base/crc32c.h"
#include "daemon/base/files.h"
#include "daemon/base/input_file.h"
#include "daemon/train/files/safetensors.h"
#include "kernels/base/error.h"
#include "kernels/base/log.h"

namespace meshloom::control {
namespace {

/// So much is lost at most when the daemon dies.
constexpr std::int64_t kBetweenCommits = std::int64_t{32} << 20;

}  // namespace

void check_all_committed(const std::string& upload, std::int64_t size, std::int64_t committed) {
  if (committed >= size) return;
  throw FailedPrecondition(fmt::format("upload \"{}\" has {} of {} bytes", upload, committed, size),
                           "UPLOAD_INCOMPLETE",
                           {{"upload", upload}, {"committed_bytes", std::to_string(committed)}});
}

void check_chunk(const std::string& upload, std::int64_t size, std::int64_t position,
                 std::int64_t offset, const std::string& data, std::uint32_t crc32c) {
  const Error::Metadata where = {{"upload", upload}, {"committed_bytes", std::to_string(position)}};
  if (offset != position)
    throw OutOfRange(
        fmt::format("write_offset is {}, expected {}: go on from there", offset, position),
        "WRONG_OFFSET", where);
  if (data.size() > kLargestChunk)
    throw InvalidArgument(
        fmt::format("a chunk has {} bytes, at most {} are taken", data.size(), kLargestChunk),
        "CHUNK_TOO_LARGE", {{"field", "data"}});
  const auto end = position + static_cast<std::int64_t>(data.size());
  if (end > size)
    throw OutOfRange(
        fmt::format("the chunk ends at {}, the upload was declared with {} bytes", end, size),
        "WRONG_OFFSET", where);
  const std::uint32_t found = base::crc32c(std::as_bytes(std::span(data)));
  if (found != crc32c)
    throw Aborted(fmt::format("the chunk at {} has CRC32C {:08x}, its sender says {:08x}: send it "
                              "again from the committed size",
                              offset, found, crc32c),
                  "CHUNK_CHECKSUM_MISMATCH", where);
}

UploadWriter::UploadWriter(UploadStore& store, v1::StoredUpload upload, FileDigest known)
    : store_(store),
      upload_(std::move(upload)),
      path_(store.blobs().incoming(upload_.id())),
      file_(store.blobs().open_incoming(upload_.id())),
      position_(upload_.committed_bytes()),
      committed_(upload_.committed_bytes()),
      header_checked_(!upload_.file_name().ends_with(".safetensors")),
      digest_(std::make_unique<DigestThread>(path_, std::move(known), committed_)) {}

UploadWriter::~UploadWriter() {
  std::optional<FileDigest> digest;
  try {
    if (!discarded_) commit();
    // A beginning that is still being read is read again when it is needed.
    if (committed_ == position_ && digest_->drain_new()) digest = digest_->finish();
  } catch (const std::exception& error) {
    spdlog::warn("upload {}: {} bytes are not kept: {}", upload_.id(), position_ - committed_,
                 error.what());
  }
  digest_.reset();
  if (discarded_ || committed_ != position_) digest.reset();
  store_.unlease(upload_.id(), std::move(digest));
}

void UploadWriter::append(std::int64_t offset, std::string data, std::uint32_t crc32c) {
  check_chunk(upload_.id(), upload_.size_bytes(), position_, offset, data, crc32c);
  base::write_all_at(file_.get(), data, static_cast<std::uint64_t>(offset), path_);
  position_ += static_cast<std::int64_t>(data.size());
  digest_->append(std::move(data));
  if (!header_checked_) check_header();
  if (position_ - committed_ >= kBetweenCommits) commit();
}

void UploadWriter::check_header() {
  const base::InputFile file(path_, base::InputFile::Links::kRefuse);
  if (!train::decides_safetensors_header(file, static_cast<std::uint64_t>(position_))) return;
  try {
    train::SafetensorsFile::open(path_, upload_.file_name());
  } catch (const InvalidArgument&) {
    discarded_ = true;
    store_.discard(upload_.id());
    throw;
  }
  header_checked_ = true;
}

void UploadWriter::commit() {
  if (committed_ == position_) return;
  base::sync_data(file_.get(), path_);
  store_.commit_bytes(upload_.id(), position_);
  committed_ = position_;
}

}  // namespace meshloom::control
