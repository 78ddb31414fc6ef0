// SPDX-License-Identifier: Apache-2.0
#include "daemon/control/ranks/remote_disk.h"

#include <algorithm>
#include <cstring>
#include <mutex>
#include <set>

#include "daemon/base/crc32c.h"
#include "daemon/base/files.h"
#include "daemon/control/net/status.h"
#include "daemon/control/ranks/rank_channel.h"
#include "kernels/base/error.h"
#include "v1/rank_file_service.grpc.pb.h"

namespace meshloom::control {
namespace {

namespace fs = std::filesystem;
using Stub = v1::RankFileService::Stub;

template <typename Answer>
void throw_error_of(const Answer& answer) {
  if (answer.has_error()) throw to_error(answer.error());
}

void check_reached(const grpc::Status& status, const fs::path& path) {
  if (status.ok()) return;
  throw IoError(fmt::format("{}: rank 0, whose file it is, cannot be reached: {}",
                            base::shown(path), status.error_message()),
                "RANK0_UNREACHABLE", {{"path", base::shown(path)}});
}

}  // namespace

/// The connection, and what is under way on it.
class RemoteDisk::Calls {
 public:
  Calls(const std::string& address, std::string secret, int rank, comm::TrainingPulse* pulse,
        const LaunchKey& key)
      : stub_(v1::RankFileService::NewStub(make_rank_channel(address, true, key))),
        secret_(std::move(secret)),
        rank_(rank),
        pulse_(pulse) {}

  /// One call, as long as it lives.
  class Call {
   public:
    explicit Call(Calls& calls) : calls_(calls) {
      context.AddMetadata(kSecretKey, calls_.secret_);
      const std::lock_guard lock(calls_.mutex_);
      calls_.open_.insert(&context);
      if (calls_.cancelled_) context.TryCancel();
    }
    ~Call() {
      const std::lock_guard lock(calls_.mutex_);
      calls_.open_.erase(&context);
    }
    Call(const Call&) = delete;
    Call& operator=(const Call&) = delete;

    grpc::ClientContext context;

   private:
    Calls& calls_;
  };

  Stub& stub() { return *stub_; }
  int rank() const { return rank_; }
  void advance() {
    if (pulse_ != nullptr) pulse_->advance();
  }
  void cancel() {
    const std::lock_guard lock(mutex_);
    cancelled_ = true;
    for (grpc::ClientContext* context : open_) context->TryCancel();
  }

  template <typename Request, typename Answer>
  Answer ask(grpc::Status (Stub::*method)(grpc::ClientContext*, const Request&, Answer*),
             const Request& request, const fs::path& path) {
    Call call(*this);
    Answer answer;
    check_reached((stub_.get()->*method)(&call.context, request, &answer), path);
    advance();
    throw_error_of(answer);
    return answer;
  }
  v1::FileRequest request_of(const fs::path& path) const {
    v1::FileRequest request;
    request.set_rank(rank_);
    request.set_path(path.string());
    return request;
  }
  v1::FileLook look_at(const fs::path& path) { return ask(&Stub::LookAt, request_of(path), path); }
  v1::FileList list(const fs::path& folder, bool files_below) {
    v1::ListFilesRequest request;
    request.set_rank(rank_);
    request.set_folder(folder.string());
    request.set_files_below(files_below);
    return ask(&Stub::List, request, folder);
  }

 private:
  const std::unique_ptr<Stub> stub_;
  const std::string secret_;
  const int rank_;
  comm::TrainingPulse* const pulse_;
  std::mutex mutex_;
  std::set<grpc::ClientContext*> open_;
  bool cancelled_ = false;
};

/// The bytes of an open file.
class RemoteDisk::Range final : public base::InputFile::Source {
 public:
  Range(std::shared_ptr<Calls> calls, fs::path path, std::uint64_t inode)
      : calls_(std::move(calls)), path_(std::move(path)), inode_(inode) {}

  void read(const base::Stripes& stripes, std::span<std::byte> out) const override {
    if (out.empty()) return;
    v1::ReadFileRequest request;
    request.set_rank(calls_->rank());
    request.set_path(path_.string());
    request.set_inode(inode_);
    request.set_offset(stripes.offset);
    request.set_bytes(stripes.bytes);
    request.set_count(stripes.count);
    request.set_stride(stripes.stride);
    Calls::Call call(*calls_);
    const auto pieces = calls_->stub().Read(&call.context, request);
    v1::FilePiece piece, last;
    std::size_t done = 0;
    while (pieces->Read(&piece)) {
      calls_->advance();
      if (piece.has_error()) last = piece;
      const std::string& data = piece.data();
      const std::size_t fitting = std::min(data.size(), out.size() - done);
      std::memcpy(out.data() + done, data.data(), fitting);
      done += fitting;
    }
    check_reached(pieces->Finish(), path_);
    throw_error_of(last);
    check_internal(done == out.size(), "{}: {} of {} bytes came from rank 0", path_.string(), done,
                   out.size());
  }

 private:
  const std::shared_ptr<Calls> calls_;
  const fs::path path_;
  const std::uint64_t inode_;
};

/// A file on its way to rank 0.
class RemoteDisk::Shard final : public train::OutputFile {
 public:
  Shard(std::shared_ptr<Calls> calls, fs::path path, std::size_t expected_bytes)
      : calls_(std::move(calls)), path_(std::move(path)), call_(*calls_) {
    stream_ = calls_->stub().Write(&call_.context, &answer_);
    v1::WriteFileRequest message;
    message.mutable_header()->set_rank(calls_->rank());
    message.mutable_header()->set_path(path_.string());
    message.mutable_header()->set_expected_bytes(expected_bytes);
    send(message);
  }
  ~Shard() override {
    if (finished_) return;
    call_.context.TryCancel();
    static_cast<void>(stream_->Finish());
  }

  void write(std::span<const std::byte> bytes) override {
    v1::WriteFileRequest message;
    while (!bytes.empty()) {
      const auto part = bytes.first(std::min(bytes.size(), kPieceBytes));
      v1::WriteFileRequest::Piece& piece = *message.mutable_piece();
      piece.set_offset(written_);
      piece.set_data(part.data(), part.size());
      piece.set_crc32c(base::crc32c(part));
      send(message);
      written_ += part.size();
      bytes = bytes.subspan(part.size());
    }
  }

  /// Rank 0 syncs a file when it has all of it, so nothing can follow.
  void sync() override {
    v1::WriteFileRequest message;
    message.mutable_end()->set_bytes(written_);
    send(message);
    stream_->WritesDone();
    finish();
    check_internal(answer_.bytes() == written_, "{}: rank 0 has {} of {} bytes", path_.string(),
                   answer_.bytes(), written_);
  }

  void close() override { check_internal(finished_, "{}: closed before sync", path_.string()); }

 private:
  /// Rank 0 ends a stream early only to say why.
  void send(const v1::WriteFileRequest& message) {
    if (!stream_->Write(message)) {
      finish();
      throw IoError(fmt::format("{}: rank 0 takes no more of it", base::shown(path_)),
                    "RANK0_UNREACHABLE", {{"path", base::shown(path_)}});
    }
    calls_->advance();
  }
  void finish() {
    finished_ = true;
    check_reached(stream_->Finish(), path_);
    throw_error_of(answer_);
  }

  const std::shared_ptr<Calls> calls_;
  const fs::path path_;
  Calls::Call call_;
  v1::WrittenFile answer_;
  std::unique_ptr<grpc::ClientWriter<v1::WriteFileRequest>> stream_;
  std::uint64_t written_ = 0;
  bool finished_ = false;
};

RemoteDisk::RemoteDisk(const std::string& address, std::string secret, int rank,
                       comm::TrainingPulse* pulse, const LaunchKey& key)
    : calls_(std::make_shared<Calls>(address, std::move(secret), rank, pulse, key)) {}

RemoteDisk::~RemoteDisk() = default;

void RemoteDisk::cancel() { calls_->cancel(); }

base::FileKind RemoteDisk::kind(const fs::path& path) {
  switch (calls_->look_at(path).kind()) {
    case v1::FileLook::KIND_FILE: return base::FileKind::kFile;
    case v1::FileLook::KIND_FOLDER: return base::FileKind::kFolder;
    case v1::FileLook::KIND_OTHER: return base::FileKind::kOther;
    default: return base::FileKind::kNone;
  }
}

base::InputFile RemoteDisk::open(const fs::path& path) {
  const v1::OpenedFile opened = calls_->ask(&Stub::Open, calls_->request_of(path), path);
  return {path, opened.bytes(), std::make_shared<Range>(calls_, path, opened.inode())};
}

std::vector<std::string> RemoteDisk::list(const fs::path& folder) {
  const v1::FileList found = calls_->list(folder, false);
  return {found.paths().begin(), found.paths().end()};
}

std::vector<fs::path> RemoteDisk::files_below(const fs::path& folder) {
  const v1::FileList found = calls_->list(folder, true);
  return {found.paths().begin(), found.paths().end()};
}

std::optional<std::string> RemoteDisk::stamp(const fs::path& path) {
  const v1::FileLook look = calls_->look_at(path);
  return look.has_stamp() ? std::optional(look.stamp()) : std::nullopt;
}

std::unique_ptr<train::OutputFile> RemoteDisk::create(const fs::path& path,
                                                      std::size_t expected_bytes) {
  return std::make_unique<Shard>(calls_, path, expected_bytes);
}

}  // namespace meshloom::control
