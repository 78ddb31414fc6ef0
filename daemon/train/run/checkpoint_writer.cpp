// SPDX-License-Identifier: Apache-2.0
#include "daemon/train/run/checkpoint_writer.h"

#include <spdlog/spdlog.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <optional>

#include "daemon/comm/agreement/status_agreement.h"
#include "daemon/tensor/host_pieces.h"
#include "daemon/train/files/digest.h"
#include "daemon/train/files/safetensors_header.h"
#include "daemon/train/files/unfinished_folder.h"
#include "kernels/base/error.h"

namespace meshloom::train {
namespace {

namespace fs = std::filesystem;

std::string shard_name(int shard, int shards) {
  return fmt::format("shard-{:05}-of-{:05}.safetensors", shard, shards);
}

/// Writes and digests at once.
class DigestingFile {
 public:
  DigestingFile(OutputFiles& files, const fs::path& path, std::size_t bytes)
      : file_(files.create(path, bytes)) {}

  /// Quickest in pieces that fit into the cache, where the second of both finds them.
  void write(std::span<const std::byte> piece) {
    digest_.update(piece);
    file_->write(piece);
    written_ += piece.size();
  }
  ManifestFile finish(const std::string& name) {
    file_->sync();
    file_->close();
    return {name, written_, digest_.hex()};
  }

 private:
  std::unique_ptr<OutputFile> file_;
  Digest digest_;
  std::uint64_t written_ = 0;
};

/// This rank's share of every tensor as one safetensors file.
ManifestFile write_shard(OutputFiles& files, const fs::path& folder,
                         std::span<const StateTensor> state, int shard, int shards) {
  std::vector<SafetensorsEntry> entries;
  std::map<std::string, TensorView> views;
  std::size_t data_bytes = 0;
  for (const StateTensor& item : state) {
    const Shape& shape = item.tensor.shape();
    const planner::ShardRange rows = written_rows(item.shape(), item.spec, shard, shards);
    Shape part = shape.empty() ? Shape{1} : shape;
    part[0] = rows.size();
    if (numel(part) == 0) continue;
    const TensorView whole = item.tensor.view();
    views[item.name] = shape.empty() ? whole : rows_of(whole, rows.begin, rows.size());
    entries.push_back({item.name, DType::kFloat32, part, 0, 0});
    data_bytes += static_cast<std::size_t>(numel(part)) * sizeof(float);
  }
  const std::string header = make_safetensors_header(entries, {{"format", "meshloom"}});
  const std::string name = shard_name(shard, shards);
  DigestingFile file(files, folder / name, header.size() + data_bytes);
  file.write(std::as_bytes(std::span(header)));
  std::optional<HostPieces> pieces;
  if (!entries.empty()) pieces.emplace(state.front().tensor.context());
  for (const SafetensorsEntry& entry : entries)
    pieces->read(views.at(entry.name), entry.dtype,
                 [&](std::span<const std::byte> piece) { file.write(piece); });
  return file.finish(name);
}

/// What rank `shard` has written.
std::vector<ManifestPiece> pieces_of(std::span<const StateTensor> state, int shard, int shards) {
  std::vector<ManifestPiece> pieces;
  for (std::size_t t = 0; t < state.size(); ++t) {
    const Shape& shape = state[t].shape();
    const planner::ShardRange rows = written_rows(shape, state[t].spec, shard, shards);
    Piece piece = part_of_piece(held_piece(shape, state[t].spec, shard), 0, rows);
    if (rows.size() > 0 && piece.elements() > 0) pieces.push_back({t, std::move(piece)});
  }
  return pieces;
}

/// Everyone's file, by rank.
std::vector<ManifestFile> gather_files(comm::ProcessGroup& world, const ManifestFile& mine) {
  constexpr std::size_t kDigestCharacters = 32;
  using Record = std::array<std::byte, sizeof(std::uint64_t) + kDigestCharacters>;
  std::vector<Record> records(static_cast<std::size_t>(world.size()));
  Record& own = records[static_cast<std::size_t>(world.rank())];
  std::memcpy(own.data(), &mine.bytes, sizeof mine.bytes);
  std::memcpy(own.data() + sizeof mine.bytes, mine.xxh3_128.data(), kDigestCharacters);
  if (world.size() > 1) {
    std::vector<TensorView> views;
    for (Record& record : records)
      views.push_back(
          make_view(record.data(), DType::kUInt8, {static_cast<std::int64_t>(record.size())}));
    world.all_gather(views, views[static_cast<std::size_t>(world.rank())])->wait_host();
  }
  std::vector<ManifestFile> files;
  for (int rank = 0; rank < world.size(); ++rank) {
    const Record& record = records[static_cast<std::size_t>(rank)];
    ManifestFile file;
    file.name = shard_name(rank, world.size());
    std::memcpy(&file.bytes, record.data(), sizeof file.bytes);
    file.xxh3_128.assign(reinterpret_cast<const char*>(record.data() + sizeof file.bytes),
                         kDigestCharacters);
    files.push_back(std::move(file));
  }
  return files;
}

void prune(FileSystem& files, const CheckpointLocation& location) {
  if (location.keep_latest_k == 0) return;
  auto entries = list_checkpoints(location.directory);
  const auto keep = static_cast<std::size_t>(location.keep_latest_k);
  if (entries.size() <= keep) return;
  entries.resize(entries.size() - keep);
  for (const CheckpointEntry& entry : entries) {
    if (location.keep_steps.contains(entry.step)) continue;
    try {
      discard_folder(files, entry.folder);
    } catch (const Error& error) {
      spdlog::warn("old checkpoint {} could not be deleted: {}", entry.folder.string(),
                   error.what());
    }
  }
}

void write_manifest(FileSystem& files, const fs::path& path, const Manifest& manifest) {
  const std::string text = manifest_to_json(manifest);
  const auto file = files.create(path, text.size());
  file->write(std::as_bytes(std::span(text)));
  file->sync();
  file->close();
}

void remove_quietly(FileSystem& files, const fs::path& path) {
  try {
    files.remove_all(path);
  } catch (const Error& error) {
    spdlog::warn("unfinished checkpoint {} could not be removed: {}", path.string(), error.what());
  }
}

/// All that write_checkpoint says of the protocol, at `target`.
void write_folder(comm::ProcessGroup& world, FileSystem& files, OutputFiles* shards,
                  const fs::path& target, Manifest manifest, std::span<const StateTensor> state,
                  std::span<const CarriedFile> carried) {
  const fs::path temporary = unfinished_folder(target);
  const bool leader = world.rank() == 0;
  try {
    run_agreed(world, [&] {
      if (!leader) return;
      files.remove_all(temporary);
      files.create_directories(temporary);
    });
    ManifestFile mine;
    run_agreed(world, [&] {
      mine = write_shard(shards ? *shards : files, temporary, state, world.rank(), world.size());
    });
    manifest.files = gather_files(world, mine);
    manifest.tensors.clear();
    for (const StateTensor& item : state) manifest.tensors.push_back({item.name, item.shape()});
    for (int rank = 0; rank < world.size(); ++rank)
      manifest.files[static_cast<std::size_t>(rank)].pieces = pieces_of(state, rank, world.size());
    run_agreed(world, [&] {
      if (!leader) return;
      manifest.other_files.clear();
      for (const auto& [name, bytes] : carried) {
        DigestingFile file(files, temporary / name, bytes.size());
        file.write(std::as_bytes(std::span(bytes)));
        manifest.other_files.push_back(file.finish(name));
      }
      // The manifest and the rename make it a checkpoint.
      write_manifest(files, temporary / kManifestName, manifest);
      put_in_place(files, temporary, target);
    });
  } catch (const Error&) {
    if (leader) remove_quietly(files, temporary);
    throw;
  }
}

}  // namespace

fs::path write_checkpoint(comm::ProcessGroup& world, const CheckpointLocation& location,
                          Manifest manifest, std::span<const StateTensor> state,
                          std::span<const CarriedFile> carried) {
  const fs::path target = location.directory / checkpoint_folder_name(manifest.step);
  write_folder(world, location.files(), location.shards, target, std::move(manifest), state,
               carried);
  if (world.rank() == 0) prune(location.files(), location);
  return target;
}

void rewrite_progress(comm::ProcessGroup& world, const CheckpointLocation& location,
                      std::int64_t step, const std::string& progress) {
  run_agreed(world, [&] {
    if (world.rank() != 0) return;
    FileSystem& files = location.files();
    const fs::path folder = location.directory / checkpoint_folder_name(step);
    Manifest manifest = read_manifest(folder);
    manifest.validation_progress = progress;
    const fs::path next = unfinished_folder(folder);
    files.remove_all(next);
    write_manifest(files, next, manifest);
    files.rename(next, folder / kManifestName);
    files.sync_directory(folder);
    prune(files, location);
  });
}

void write_checkpoint_at(comm::ProcessGroup& world, const fs::path& folder, FileSystem& files,
                         Manifest manifest, std::span<const StateTensor> state,
                         std::span<const CarriedFile> carried, OutputFiles* shards) {
  run_agreed(world, [&] {
    if (world.rank() == 0 && fs::exists(folder))
      throw AlreadyExists(fmt::format("{} is there already", folder.string()), "ALREADY_EXISTS",
                          {{"path", folder.string()}});
  });
  write_folder(world, files, shards, folder, std::move(manifest), state, carried);
}

}  // namespace meshloom::train
