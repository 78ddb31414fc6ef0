// SPDX-License-Identifier: Apache-2.0
#include "daemon/cli/transfers/upload.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <cstring>
#include <span>

#include "daemon/base/crc32c.h"
#include "daemon/base/sha256.h"

namespace meshloom::cli {
namespace {

constexpr std::int64_t kChunk = 1 << 20;
constexpr std::chrono::minutes kFinishDeadline{60};  // the daemon may have to read the file again

std::string digest_of(const base::InputFile& file) {
  base::Sha256 digest;
  std::vector<std::byte> bytes(static_cast<std::size_t>(kChunk));
  for (std::uint64_t at = 0; at < file.size(); at += kChunk) {
    const auto part = std::span(bytes).first(std::min<std::uint64_t>(kChunk, file.size() - at));
    file.read(at, part);
    digest.update(part);
  }
  return digest.hex();
}

/// Bytes in memory where a file is expected.
class MemoryBytes final : public base::InputFile::Source {
 public:
  explicit MemoryBytes(std::string bytes) : bytes_(std::move(bytes)) {}

  void read(const base::Stripes& stripes, std::span<std::byte> out) const override {
    for (std::uint64_t i = 0; i < stripes.count; ++i)
      std::memcpy(out.data() + i * stripes.bytes,
                  bytes_.data() + stripes.offset + i * stripes.stride, stripes.bytes);
  }

 private:
  const std::string bytes_;
};

}  // namespace

Uploader::Uploader(Client& client, bool quiet) : client_(client), display_(quiet, "sent") {}

Transfer Uploader::begin(const std::filesystem::path& path, const std::string& name) {
  Transfer transfer{base::InputFile(path), name, {}};
  v1::Upload& upload = transfer.upload;
  upload.set_file_name(transfer.name);
  upload.set_size_bytes(static_cast<std::int64_t>(transfer.file.size()));
  upload.set_sha256(digest_of(transfer.file));
  if (!find_earlier(transfer)) {
    v1::CreateUploadRequest request;
    request.set_request_id(make_request_id());
    request.set_file_name(transfer.name);
    request.set_size_bytes(upload.size_bytes());
    request.set_sha256(upload.sha256());
    upload =
        client_.call(client_.uploads(), &v1::UploadService::Stub::CreateUpload, request).upload();
  }
  return transfer;
}

Transfer Uploader::begin(VerbData data) {
  v1::CreateUploadRequest request;
  request.set_request_id(make_request_id());
  request.set_kind(v1::UPLOAD_KIND_TRANSIENT);
  request.set_run(data.run);
  request.set_size_bytes(static_cast<std::int64_t>(data.bytes.size()));
  const auto response =
      client_.call(client_.uploads(), &v1::UploadService::Stub::CreateUpload, request);
  const std::uint64_t size = data.bytes.size();
  const auto bytes = std::make_shared<MemoryBytes>(std::move(data.bytes));
  return {base::InputFile(data.name, size, bytes), data.name, response.upload()};
}

bool Uploader::find_earlier(Transfer& transfer) {
  v1::ListUploadsRequest request;
  do {
    const auto page =
        client_.call(client_.uploads(), &v1::UploadService::Stub::ListUploads, request);
    request.set_page_token(page.next_page_token());
    for (const v1::Upload& earlier : page.uploads()) {
      const v1::Upload& wanted = transfer.upload;
      if (earlier.sha256() != wanted.sha256() || earlier.size_bytes() != wanted.size_bytes() ||
          earlier.file_name() != wanted.file_name())
        continue;
      transfer.upload = earlier;
      transfer.was_complete = earlier.state() == v1::UPLOAD_STATE_COMPLETE;
      return true;
    }
  } while (!request.page_token().empty());
  return false;
}

grpc::Status Uploader::stream(Transfer& transfer, std::int64_t end) {
  grpc::ClientContext context;
  client_.introduce(context);
  v1::WriteUploadResponse response;
  const auto writer = client_.uploads().WriteUpload(&context, &response);
  std::int64_t offset = transfer.upload.committed_bytes();
  bool first = true;
  while (offset < end) {
    std::string data(static_cast<std::size_t>(std::min(kChunk, end - offset)), '\0');
    transfer.file.read(static_cast<std::uint64_t>(offset), std::as_writable_bytes(std::span(data)));
    v1::WriteUploadRequest chunk;
    chunk.set_write_offset(offset);
    chunk.set_crc32c(base::crc32c(std::as_bytes(std::span(data))));
    chunk.set_data(std::move(data));
    if (first) chunk.set_upload(transfer.upload.name());
    first = false;
    offset += static_cast<std::int64_t>(chunk.data().size());
    if (!writer->Write(chunk)) break;
    display_.show(offset);
  }
  writer->WritesDone();
  const grpc::Status status = writer->Finish();
  if (status.ok()) transfer.upload.set_committed_bytes(response.committed_bytes());
  return status;
}

void Uploader::send(Transfer& transfer, std::int64_t end) {
  constexpr int kAttempts = 4;  // without anything new on the daemon's disk
  display_.begin(transfer.name, transfer.upload.size_bytes(), transfer.upload.committed_bytes());
  for (int attempt = 1; transfer.upload.committed_bytes() < end; ++attempt) {
    const std::int64_t before = transfer.upload.committed_bytes();
    const grpc::Status status = stream(transfer, end);
    if (status.ok() && transfer.upload.committed_bytes() > before) continue;
    if (status.ok())
      throw CliError(kFailed, fmt::format("{}: the daemon took nothing behind byte {}",
                                          transfer.name, before));
    if (status.error_code() != grpc::StatusCode::UNAVAILABLE || attempt >= kAttempts)
      client_.fail(status);
    client_.wait_for_connection(std::chrono::seconds(1));
    v1::GetUploadRequest request;
    request.set_name(transfer.upload.name());
    transfer.upload =
        client_.call(client_.uploads(), &v1::UploadService::Stub::GetUpload, request).upload();
    if (transfer.upload.committed_bytes() > before) attempt = 0;
  }
}

void Uploader::finish(Transfer& transfer) {
  send(transfer, transfer.upload.size_bytes());
  if (transfer.upload.state() != v1::UPLOAD_STATE_COMPLETE) {
    v1::FinishUploadRequest request;
    request.set_name(transfer.upload.name());
    transfer.upload = client_
                          .call(client_.uploads(), &v1::UploadService::Stub::FinishUpload, request,
                                {.deadline = kFinishDeadline})
                          .upload();
  }
  display_.end();
}

std::string allowed_upload_name(const std::filesystem::path& path) {
  constexpr std::size_t kLongest = 128;
  std::string name = path.filename().string().substr(0, kLongest);
  const auto is_plain = [](unsigned char c) {
    return c < 0x80 && (std::isalnum(c) != 0 || c == '_');
  };
  for (std::size_t i = 0; i < name.size(); ++i) {
    const bool allowed = is_plain(static_cast<unsigned char>(name[i])) ||
                         (i > 0 && (name[i] == '.' || name[i] == '-'));
    if (!allowed) name[i] = '_';
  }
  return name;
}

std::int64_t header_bytes(const base::InputFile& file) {
  std::uint64_t length = 0;
  if (file.size() < sizeof length) return static_cast<std::int64_t>(file.size());
  file.read(0, std::as_writable_bytes(std::span(&length, 1)));
  return static_cast<std::int64_t>(sizeof length +
                                   std::min<std::uint64_t>(length, file.size() - sizeof length));
}

}  // namespace meshloom::cli
