// SPDX-License-Identifier: Apache-2.0
#include "daemon/cli/download.h"

#include <fmt/format.h>
#include <xxhash.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <memory>

namespace meshloom::cli {
namespace {

namespace fs = std::filesystem;

/// A relative path of plain names: what a server says must not choose where files go.
bool is_safe(const fs::path& path) {
  return !path.empty() && path.is_relative() &&
         std::all_of(path.begin(), path.end(), [](const fs::path& part) {
           return part != ".." && part != "." && !part.empty();
         });
}

/// The file that is being received.
class Incoming {
 public:
  Incoming(const fs::path& folder, const v1::ReadCheckpointResponse& first)
      : name_(first.file()),
        size_(first.file_size()),
        digest_(XXH3_createState(), &XXH3_freeState) {
    if (!is_safe(name_))
      throw CliError(kFailed,
                     fmt::format("the daemon sent the file name \"{}\", which is refused", name_));
    fs::create_directories((folder / name_).parent_path());
    file_.open(folder / name_, std::ios::binary | std::ios::trunc);
    XXH3_128bits_reset(digest_.get());
  }

  /// True with the last piece.
  bool append(const v1::ReadCheckpointResponse& piece) {
    if (piece.file() != name_ || piece.offset() != received_)
      throw CliError(kFailed, fmt::format("{}: a piece is missing at byte {}", name_, received_));
    file_.write(piece.data().data(), static_cast<std::streamsize>(piece.data().size()));
    XXH3_128bits_update(digest_.get(), piece.data().data(), piece.data().size());
    received_ += static_cast<std::int64_t>(piece.data().size());
    if (piece.xxh3_128().empty()) return false;
    const auto hash = XXH3_128bits_digest(digest_.get());
    if (received_ != size_ ||
        piece.xxh3_128() != fmt::format("{:016x}{:016x}", hash.high64, hash.low64))
      throw CliError(kFailed, fmt::format("{}: size or digest is wrong", name_));
    file_.close();
    if (!file_)
      throw CliError(kFailed, fmt::format("{} cannot be written: is the disk full?", name_));
    return true;
  }

  std::int64_t received() const { return received_; }

 private:
  std::string name_;
  std::int64_t size_;
  std::int64_t received_ = 0;
  std::ofstream file_;
  std::unique_ptr<XXH3_state_t, decltype(&XXH3_freeState)> digest_;
};

DownloadResult receive(Client& client, const std::string& name, const fs::path& folder) {
  grpc::ClientContext context;
  v1::ReadCheckpointRequest request;
  request.set_name(name);
  const auto stream = client.checkpoints().ReadCheckpoint(&context, request);
  DownloadResult result;
  std::unique_ptr<Incoming> incoming;
  v1::ReadCheckpointResponse piece;
  while (stream->Read(&piece)) {
    if (!incoming) incoming = std::make_unique<Incoming>(folder, piece);
    if (!incoming->append(piece)) continue;
    ++result.files;
    result.bytes += incoming->received();
    incoming.reset();
  }
  const grpc::Status status = stream->Finish();
  if (!status.ok()) client.fail(status);
  if (incoming) throw CliError(kFailed, "the stream ended in the middle of a file");
  return result;
}

}  // namespace

DownloadResult download_checkpoint(Client& client, const std::string& name,
                                   const std::string& folder) {
  if (fs::exists(folder)) throw CliError(kUsage, fmt::format("{} exists already", folder));
  const fs::path part = fs::path(folder).lexically_normal().string() + ".part";
  try {
    fs::remove_all(part);
    fs::create_directories(part);
    const DownloadResult result = receive(client, name, part);
    fs::rename(part, folder);
    return result;
  } catch (...) {
    std::error_code ignored;
    fs::remove_all(part, ignored);
    throw;
  }
}

}  // namespace meshloom::cli
