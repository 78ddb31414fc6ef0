// SPDX-License-Identifier: Apache-2.0
#include "daemon/control/services/download_stream.h"

#include <algorithm>

#include "daemon/control/stores/checkpoint_damage.h"
#include "daemon/train/files/export_digests.h"
#include "daemon/train/files/file_check.h"

namespace meshloom::control {
namespace {

constexpr std::int64_t kPiece = 1 << 20;

}  // namespace

void DownloadStream::open_all() {
  opened_ = true;
  source_ = sources_.find(caller(), request_.name());
  // First, since what is open stays readable when the checkpoint is pruned meanwhile.
  read_checkpoint(request_.name(), source_.folder, [&] {
    train::Manifest manifest;
    has_digests_ = has_digests(source_.folder);
    if (train::is_checkpoint(source_.folder))
      manifest = train::read_manifest(source_.folder);
    else if (has_digests_)
      manifest.other_files = train::read_export_digests(source_.folder).value();
    files_ = open_files(source_.folder);
    for (const train::ManifestFile& file : manifest.files) expect(file);
    for (const train::ManifestFile& file : manifest.other_files) expect(file);
  });
  std::erase_if(files_, [&](const OpenFile& file) { return file.name() <= request_.after_file(); });
  const std::int64_t size = files_.empty() ? 0 : files_.front().size();
  if (request_.offset() < 0 || request_.offset() > size)
    throw OutOfRange(fmt::format("offset {} is not inside the {} bytes of {}", request_.offset(),
                                 size, files_.empty() ? "no file" : files_.front().name()),
                     "OFFSET_INVALID", {{"field", "offset"}});
  offset_ = request_.offset();
}

std::string DownloadStream::read_piece(std::int64_t offset, std::int64_t end) {
  const OpenFile& file = files_[file_];
  const std::int64_t wanted = std::min(end - offset, kPiece);
  std::string data = file.read(offset, static_cast<std::size_t>(wanted));
  if (data.empty() && wanted > 0)
    throw DataLoss(fmt::format("{} became shorter while it was read", file.name()), "FILE_CHANGED");
  const auto bytes = std::as_bytes(std::span(data));
  xxh3_.update(bytes);
  if (request_.sha256()) sha256_.update(bytes);
  digested_ += static_cast<std::int64_t>(data.size());
  return data;
}

void DownloadStream::expect(const train::ManifestFile& file) {
  const std::filesystem::path path = source_.folder / file.name;
  const auto found = std::find_if(files_.begin(), files_.end(),
                                  [&](const OpenFile& open) { return open.name() == file.name; });
  if (found == files_.end()) train::checkpoint_damaged(path, "it is not there");
  train::check_size(path, static_cast<std::uint64_t>(found->size()), file.bytes);
  expected_[file.name] = file.xxh3_128;
}

bool DownloadStream::produce() {
  if (!opened_) open_all();
  if (file_ == files_.size()) {
    finish();
    return false;
  }
  // What the client has is in the digests all the same.
  if (digested_ < offset_) {
    read_piece(digested_, offset_);
    return true;
  }
  const OpenFile& file = files_[file_];
  v1::ReadCheckpointResponse piece;
  piece.set_file(file.name());
  piece.set_file_size(file.size());
  piece.set_offset(offset_);
  piece.set_data(read_piece(offset_, file.size()));
  offset_ = digested_;
  if (offset_ >= file.size()) {
    piece.set_xxh3_128(xxh3_.hex());
    if (const auto expected = expected_.find(file.name()); expected != expected_.end())
      read_checkpoint(request_.name(), source_.folder, [&] {
        train::check_digest(source_.folder / file.name(), piece.xxh3_128(), expected->second);
      });
    piece.set_compared(has_digests_);
    if (request_.sha256()) piece.set_sha256(sha256_.hex());
    xxh3_ = {};
    sha256_ = {};
    offset_ = digested_ = 0;
    ++file_;
  }
  write(std::move(piece));
  return true;
}

}  // namespace meshloom::control
