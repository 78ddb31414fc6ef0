// SPDX-License-Identifier: Apache-2.0
#include "daemon/control/ranks/rank_file_service.h"

#include <algorithm>

#include "daemon/base/crc32c.h"
#include "daemon/base/disk.h"
#include "daemon/base/files.h"
#include "daemon/control/net/status.h"
#include "daemon/control/ranks/rank_channel.h"
#include "daemon/train/files/file_system.h"
#include "kernels/base/error.h"

namespace meshloom::control {
namespace {

namespace fs = std::filesystem;

v1::FileLook::Kind kind_of(base::FileKind kind) {
  switch (kind) {
    case base::FileKind::kFile: return v1::FileLook::KIND_FILE;
    case base::FileKind::kFolder: return v1::FileLook::KIND_FOLDER;
    case base::FileKind::kOther: return v1::FileLook::KIND_OTHER;
    case base::FileKind::kNone: break;
  }
  return v1::FileLook::KIND_NONE;
}

/// Ranges of a file, joined to pieces that are as large as they may be.
class PieceSender {
 public:
  PieceSender(const base::InputFile& file, grpc::ServerWriter<v1::FilePiece>& pieces)
      : file_(file), pieces_(pieces) {}

  /// False once the rank has gone.
  bool send(std::uint64_t offset, std::uint64_t bytes) {
    while (bytes > 0) {
      std::string& data = *piece_.mutable_data();
      const std::size_t begin = data.size(),
                        part = std::min<std::uint64_t>(kPieceBytes - begin, bytes);
      data.resize(begin + part);
      file_.read(offset, std::as_writable_bytes(std::span(data).subspan(begin)));
      offset += part;
      bytes -= part;
      if (data.size() == kPieceBytes && !flush()) return false;
    }
    return true;
  }
  bool flush() {
    if (piece_.data().empty()) return true;
    const bool there = pieces_.Write(piece_);
    piece_.mutable_data()->clear();
    return there;
  }

 private:
  const base::InputFile& file_;
  grpc::ServerWriter<v1::FilePiece>& pieces_;
  v1::FilePiece piece_;
};

/// A file that goes away unless it is finished.
class NewFile {
 public:
  NewFile(fs::path path, std::size_t expected_bytes)
      : path_(std::move(path)), file_(train::posix_file_system().create(path_, expected_bytes)) {}
  ~NewFile() {
    std::error_code ignored;
    if (!finished_) fs::remove(path_, ignored);
  }
  NewFile(const NewFile&) = delete;
  NewFile& operator=(const NewFile&) = delete;

  std::uint64_t written() const { return written_; }
  void write(const v1::WriteFileRequest::Piece& piece) {
    const auto bytes = std::as_bytes(std::span(piece.data()));
    if (piece.offset() != written_ || bytes.size() > kPieceBytes)
      throw InvalidArgument(
          fmt::format("{}: a piece of {} bytes at {}, expected at most {} at {}",
                      base::shown(path_), bytes.size(), piece.offset(), kPieceBytes, written_),
          "PIECE_MISPLACED");
    if (const std::uint32_t crc = base::crc32c(bytes); crc != piece.crc32c())
      throw DataLoss(
          fmt::format("{}: the piece at {} has the CRC32C {:08x}, it was sent with {:08x}",
                      base::shown(path_), written_, crc, piece.crc32c()),
          "CHECKSUM_WRONG");
    file_->write(bytes);
    written_ += bytes.size();
  }
  void finish(std::uint64_t bytes) {
    if (bytes != written_)
      throw DataLoss(
          fmt::format("{}: {} bytes were sent, {} have come", base::shown(path_), bytes, written_),
          "FILE_INCOMPLETE");
    file_->sync();
    file_->close();
    finished_ = true;
  }

 private:
  const fs::path path_;
  const std::unique_ptr<train::OutputFile> file_;
  std::uint64_t written_ = 0;
  bool finished_ = false;
};

}  // namespace

template <typename Response, typename Serve>
grpc::Status RankFileServiceImpl::answer(const grpc::ServerContext& context, Response* response,
                                         const Serve& serve) {
  if (!is_of_launch(context, secret_)) return no_member_of_launch();
  try {
    serve();
  } catch (...) {
    *response->mutable_error() = to_details(std::current_exception());
  }
  return grpc::Status::OK;
}

grpc::Status RankFileServiceImpl::LookAt(grpc::ServerContext* context,
                                         const v1::FileRequest* request, v1::FileLook* response) {
  return answer(*context, response, [&] {
    const fs::path path = grants_.readable(request->rank(), request->path());
    response->set_kind(kind_of(base::own_disk().kind(path)));
    if (const auto stamp = base::own_disk().stamp(path)) response->set_stamp(*stamp);
  });
}

grpc::Status RankFileServiceImpl::Open(grpc::ServerContext* context, const v1::FileRequest* request,
                                       v1::OpenedFile* response) {
  return answer(*context, response, [&] {
    const base::InputFile file(grants_.readable(request->rank(), request->path()),
                               base::InputFile::Links::kRefuse);
    response->set_bytes(file.size());
    response->set_inode(file.inode());
  });
}

grpc::Status RankFileServiceImpl::List(grpc::ServerContext* context,
                                       const v1::ListFilesRequest* request,
                                       v1::FileList* response) {
  return answer(*context, response, [&] {
    // Told as they were asked for, so that links stay what they are for the rank.
    const fs::path folder = request->folder();
    const fs::path place = grants_.readable(request->rank(), folder);
    if (request->files_below()) {
      for (const fs::path& path : base::own_disk().files_below(place))
        response->add_paths((folder / path.lexically_relative(place)).string());
    } else {
      for (const std::string& name : base::own_disk().list(place)) response->add_paths(name);
    }
  });
}

grpc::Status RankFileServiceImpl::Read(grpc::ServerContext* context,
                                       const v1::ReadFileRequest* request,
                                       grpc::ServerWriter<v1::FilePiece>* pieces) {
  v1::FilePiece last;
  const grpc::Status status = answer(*context, &last, [&] { send(*request, *pieces); });
  if (last.has_error()) pieces->Write(last);
  return status;
}

void RankFileServiceImpl::send(const v1::ReadFileRequest& request,
                               grpc::ServerWriter<v1::FilePiece>& pieces) {
  const base::InputFile file(grants_.readable(request.rank(), request.path()),
                             base::InputFile::Links::kRefuse);
  if (file.inode() != request.inode())
    throw IoError(fmt::format("{}: another file has been put in its place since it was opened",
                              base::shown(file.path())),
                  "FILE_REPLACED", {{"path", base::shown(file.path())}});
  const std::uint64_t count = std::max<std::uint64_t>(request.count(), 1);
  // Of several stripes the last one must begin in the file, so that no sum of them overflows. Where
  // the file ends too early the read says so.
  const std::uint64_t file_bytes = file.size();
  if (count > 1 && (request.bytes() == 0 || request.stride() < request.bytes() ||
                    request.offset() > file_bytes ||
                    count - 1 > (file_bytes - request.offset()) / request.stride()))
    throw InvalidArgument(
        fmt::format(
            "{} stripes of {} bytes, {} apart, from {}: expected none that overlap or begin "
            "behind byte {}, the end of the file",
            count, request.bytes(), request.stride(), request.offset(), file_bytes),
        "STRIPES_INVALID");
  PieceSender sender(file, pieces);
  for (std::uint64_t i = 0; i < count; ++i)
    if (!sender.send(request.offset() + i * request.stride(), request.bytes())) return;
  sender.flush();
}

grpc::Status RankFileServiceImpl::Write(grpc::ServerContext* context,
                                        grpc::ServerReader<v1::WriteFileRequest>* requests,
                                        v1::WrittenFile* response) {
  return answer(*context, response, [&] { response->set_bytes(receive(*requests)); });
}

std::uint64_t RankFileServiceImpl::receive(grpc::ServerReader<v1::WriteFileRequest>& requests) {
  v1::WriteFileRequest message;
  if (!requests.Read(&message) || !message.has_header())
    throw InvalidArgument("the first message must be a header", "HEADER_MISSING");
  const v1::WriteFileRequest::Header header = message.header();
  NewFile file(grants_.writable(header.rank(), header.path()), header.expected_bytes());
  while (requests.Read(&message)) {
    if (message.has_end()) {
      file.finish(message.end().bytes());
      return file.written();
    }
    file.write(message.piece());
  }
  throw Aborted(fmt::format("{} broke off after {} bytes", header.path(), file.written()),
                "FILE_INCOMPLETE");
}

}  // namespace meshloom::control
