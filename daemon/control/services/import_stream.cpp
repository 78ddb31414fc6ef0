// SPDX-License-Identifier: Apache-2.0
#include "daemon/control/services/import_stream.h"

#include <algorithm>
#include <span>
#include <vector>

#include "daemon/base/files.h"
#include "daemon/base/published_file.h"
#include "daemon/base/sha256.h"
#include "daemon/control/services/gate.h"
#include "daemon/control/stores/names.h"
#include "kernels/base/log.h"

namespace meshloom::control {
namespace {

namespace fs = std::filesystem;

constexpr std::uint64_t kCopiedPiece = std::uint64_t{1} << 20;
/// What the disk may be behind with: a journal on the same disk waits for no more than that.
constexpr std::uint64_t kUnsynced = std::uint64_t{64} << 20;

}  // namespace

ImportStream::ImportStream(StreamHost& host, const Caller& caller, const DataWorld& world,
                           UploadStore& uploads, const v1::ImportUploadRequest& request)
    : DataStream(host, caller, "ImportUpload", world), uploads_(uploads), request_(request) {}

void ImportStream::copy(const UploadStore::OpenContent& content, const fs::path& path) {
  const std::uint64_t size = content.file.size();
  const fs::path folder = path.parent_path();
  std::error_code unknown;
  const fs::space_info room = fs::space(folder, unknown);
  if (!unknown && size > room.available)
    throw ResourceExhausted(
        fmt::format("path: the file has {} bytes, the disk of {} has room for {}", size,
                    folder.string(), room.available),
        "DISK_FULL", {{"field", "path"}, {"available_bytes", std::to_string(room.available)}});
  base::PublishedFile out(path);
  base::Sha256 digest;
  std::vector<std::byte> bytes(std::min(kCopiedPiece, size));
  for (std::uint64_t at = 0, synced = 0; at < size;) {
    part_done(request_.upload(), at, size);
    const auto piece = std::span(bytes).first(std::min(kCopiedPiece, size - at));
    content.file.read(at, piece);
    digest.update(piece);
    out.write(piece);
    at += piece.size();
    if (at - synced < kUnsynced) continue;
    out.sync();
    synced = at;
  }
  if (digest.hex() != content.upload.sha256())
    throw DataLoss(fmt::format("upload \"{}\": its bytes in the state dir have SHA-256 {}, they "
                               "came with {}",
                               content.upload.id(), digest.hex(), content.upload.sha256()),
                   "UPLOAD_DAMAGED", {{"upload", content.upload.id()}});
  check_wanted();
  try {
    out.commit(request_.overwrite() ? base::Existing::kReplace : base::Existing::kRefuse);
  } catch (const AlreadyExists&) {
    DataOutputs::refuse_existing("path", path);
  }
}

fs::path ImportStream::import_once(const UploadStore::OpenContent& content, const RequestKey& key) {
  const DataOutputs::Asked whatever_is_there{"path", request_.path(), true, true,
                                             own_data_folder(caller().identity())};
  if (uploads_.is_noted(key)) return world_.outputs.look(whatever_is_there);
  const auto place = world_.outputs.claim(whatever_is_there);
  // The first call of a repeat may have ended before the path was given to this one.
  if (uploads_.is_noted(key)) return place.path;
  world_.outputs.look(asked());
  copy(content, place.path);
  uploads_.note_request(content.upload.id(), key);
  spdlog::info("{} has the {} bytes of upload {}", place.path.string(), content.file.size(),
               content.upload.id());
  return place.path;
}

ImportStream::Result ImportStream::make_result() {
  const RequestKey key = request_key_of("ImportUpload", request_, caller());
  v1::ImportedFile imported;
  if (request_.validate_only()) {
    imported.set_path(world_.outputs.name_for_jobs(world_.outputs.look(asked())));
    return imported;
  }
  const auto content =
      uploads_.open_content(caller().holder(), parse_upload_name(request_.upload()));
  imported.set_path(world_.outputs.name_for_jobs(import_once(content, key)));
  imported.set_bytes(content.upload.size_bytes());
  imported.set_sha256(content.upload.sha256());
  return imported;
}

}  // namespace meshloom::control
