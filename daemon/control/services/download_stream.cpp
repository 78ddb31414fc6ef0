// SPDX-License-Identifier: Apache-2.0
#include "daemon/control/services/download_stream.h"

#include "daemon/control/stores/names.h"

namespace meshloom::control {

void DownloadStream::open_all() {
  opened_ = true;
  const CheckpointName name = parse_checkpoint_name(name_);
  files_ = open_files(checkpoint_folder(state_, store_.get(name.job), name.folder));
}

v1::ReadCheckpointResponse DownloadStream::next_piece() {
  constexpr std::size_t kPiece = 1 << 20;
  const OpenFile& file = files_[file_];
  v1::ReadCheckpointResponse piece;
  piece.set_file(file.name());
  piece.set_file_size(file.size());
  piece.set_offset(offset_);
  std::string data = file.read(offset_, kPiece);
  if (data.empty() && offset_ < file.size())
    throw DataLoss(fmt::format("{} became shorter while it was read", file.name()), "FILE_CHANGED");
  digest_.update(std::as_bytes(std::span(data)));
  offset_ += static_cast<std::int64_t>(data.size());
  piece.set_data(std::move(data));
  if (offset_ >= file.size()) {
    piece.set_xxh3_128(digest_.hex());
    digest_ = {};
    offset_ = 0;
    ++file_;
  }
  return piece;
}

bool DownloadStream::produce() {
  if (!opened_) open_all();
  if (file_ == files_.size()) {
    finish();
    return false;
  }
  write(next_piece());
  return true;
}

}  // namespace meshloom::control
