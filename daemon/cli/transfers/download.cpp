// SPDX-License-Identifier: Apache-2.0
#include "daemon/cli/transfers/download.h"

#include <fmt/format.h>
#include <xxhash.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <memory>
#include <optional>

#include "daemon/cli/transfers/transfer_display.h"

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

/// The file that is being received, with what is there of it already.
class Incoming {
 public:
  explicit Incoming(const fs::path& path)
      : path_(path), digest_(XXH3_createState(), &XXH3_freeState) {
    XXH3_128bits_reset(digest_.get());
    std::ifstream known(path_, std::ios::binary);
    std::string piece(1 << 20, '\0');
    while (known.read(piece.data(), static_cast<std::streamsize>(piece.size())),
           known.gcount() > 0) {
      XXH3_128bits_update(digest_.get(), piece.data(), static_cast<std::size_t>(known.gcount()));
      received_ += known.gcount();
    }
    file_.open(path_, std::ios::binary | std::ios::app);
  }

  /// True with the last piece.
  bool append(const v1::ReadCheckpointResponse& piece) {
    if (name_.empty()) name_ = piece.file();
    if (!is_safe(name_))
      throw CliError(kFailed,
                     fmt::format("the daemon sent the file name \"{}\", which is refused", name_));
    if (piece.file() != name_ || piece.offset() != received_)
      throw CliError(kFailed, fmt::format("{}: a piece is missing at byte {}", name_, received_));
    file_.write(piece.data().data(), static_cast<std::streamsize>(piece.data().size()));
    XXH3_128bits_update(digest_.get(), piece.data().data(), piece.data().size());
    received_ += static_cast<std::int64_t>(piece.data().size());
    if (piece.xxh3_128().empty()) return false;
    const auto hash = XXH3_128bits_digest(digest_.get());
    if (received_ != piece.file_size() ||
        piece.xxh3_128() != fmt::format("{:016x}{:016x}", hash.high64, hash.low64))
      throw CliError(kFailed, fmt::format("{}: size or digest is wrong", name_));
    return true;
  }

  void close() {
    file_.close();
    if (!file_)
      throw CliError(kFailed,
                     fmt::format("{} cannot be written: is the disk full?", path_.string()));
  }
  const std::string& name() const { return name_; }
  std::int64_t received() const { return received_; }

 private:
  const fs::path path_;
  std::string name_;
  std::int64_t received_ = 0;
  std::ofstream file_;
  std::unique_ptr<XXH3_state_t, decltype(&XXH3_freeState)> digest_;
};

class Download {
 public:
  Download(Client& client, const DownloadOptions& options)
      : client_(client),
        options_(options),
        part_(fs::path(options.folder).lexically_normal().string() + ".part"),
        incoming_(part_.string() + ".file"),
        display_(options.quiet, "received") {}

  DownloadResult run() {
    prepare();
    try {
      receive_all();
      fs::rename(part_, options_.folder);
    } catch (const CliError& error) {
      if (error.code() != kUnreachable) {
        discard();
        throw;
      }
      throw CliError(error.code(),
                     fmt::format("{}\n{} of {} bytes are kept: --resume goes on from there",
                                 error.what(), part_.string(), result_.bytes),
                     error.details());
    } catch (...) {
      discard();
      throw;
    }
    fs::remove(incoming_);
    return result_;
  }

 private:
  void prepare() {
    if (fs::exists(options_.folder))
      throw CliError(kUsage, fmt::format("{} exists already", options_.folder));
    if (options_.resume && !fs::is_directory(part_))
      throw CliError(kUsage,
                     fmt::format("there is nothing to resume: {} is not there", part_.string()));
    if (!options_.resume) discard();
    fs::create_directories(part_);
    for (const auto& item : fs::recursive_directory_iterator(part_)) {
      if (!item.is_regular_file()) continue;
      ++result_.files;
      result_.bytes += static_cast<std::int64_t>(item.file_size());
      after_ = std::max(after_, fs::relative(item.path(), part_).generic_string());
    }
  }

  void discard() {
    std::error_code ignored;
    fs::remove_all(part_, ignored);
    fs::remove(incoming_, ignored);
  }

  void receive_all() {
    constexpr int kAttempts = 5;  // in a row that bring nothing
    for (int attempt = 1;;) {
      const std::int64_t before = received_;
      const grpc::Status status = receive();
      if (status.ok()) return;
      attempt = received_ > before ? 1 : attempt + 1;
      if (status.error_code() != grpc::StatusCode::UNAVAILABLE || attempt > kAttempts)
        client_.fail(status);
      client_.wait_for_connection(std::chrono::milliseconds(500 * attempt));
    }
  }

  /// One stream, from where the last one ended.
  grpc::Status receive() {
    auto incoming = std::make_unique<Incoming>(incoming_);
    grpc::ClientContext context;
    client_.introduce(context);
    v1::ReadCheckpointRequest request;
    request.set_name(options_.name);
    request.set_after_file(after_);
    request.set_offset(incoming->received());
    const auto stream = client_.checkpoints().ReadCheckpoint(&context, request);
    v1::ReadCheckpointResponse piece;
    while (stream->Read(&piece)) {
      if (!incoming) incoming = std::make_unique<Incoming>(incoming_);
      received_ += static_cast<std::int64_t>(piece.data().size());
      if (incoming->name().empty())
        display_.begin(piece.file(), piece.file_size(), incoming->received());
      const bool whole = incoming->append(piece);
      display_.show(incoming->received());
      if (!whole) continue;
      result_.compared = piece.compared();
      display_.end();
      keep(*incoming);
      incoming.reset();
    }
    if (incoming) incoming->close();
    const grpc::Status status = stream->Finish();
    if (status.ok() && incoming && incoming->received() > 0)
      throw CliError(kFailed, "the stream ended in the middle of a file");
    return status;
  }

  void keep(Incoming& incoming) {
    incoming.close();
    fs::create_directories((part_ / incoming.name()).parent_path());
    fs::rename(incoming_, part_ / incoming.name());
    after_ = incoming.name();
    ++result_.files;
    result_.bytes += incoming.received();
  }

  Client& client_;
  const DownloadOptions& options_;
  const fs::path part_, incoming_;
  std::string after_;  ///< the last file by name that is complete
  std::int64_t received_ = 0;
  TransferDisplay display_;
  DownloadResult result_;
};

}  // namespace

DownloadResult download_files(Client& client, const DownloadOptions& options) {
  return Download(client, options).run();
}

}  // namespace meshloom::cli
