// SPDX-License-Identifier: Apache-2.0
#include "daemon/train/run/checkpoint_reader.h"

#include <algorithm>

#include "daemon/comm/agreement/rank_values.h"
#include "daemon/comm/agreement/status_agreement.h"
#include "daemon/train/files/file_check.h"
#include "kernels/base/error.h"

namespace meshloom::train {
namespace {

namespace fs = std::filesystem;

/// The newest of the entries that is sound; `bad` gets those that were passed over. Throws the
/// newest one's error if none is.
FoundCheckpoint newest_sound(comm::ProcessGroup& world, const std::vector<CheckpointEntry>& entries,
                             base::Disk& disk, std::vector<CheckpointEntry>* bad) {
  std::exception_ptr newest_error;
  std::vector<std::string> notes;
  for (auto entry = entries.rbegin(); entry != entries.rend(); ++entry) {
    try {
      FoundCheckpoint found = open_checkpoint(world, entry->folder, disk);
      if (!notes.empty())
        notes.push_back(fmt::format("resumed from {} instead", entry->folder.filename().string()));
      found.notes.insert(found.notes.begin(), notes.begin(), notes.end());
      return found;
    } catch (const DataLoss& error) {
      if (!newest_error) newest_error = std::current_exception();
      bad->push_back(*entry);
      notes.push_back(error.what());
    }
  }
  std::rethrow_exception(newest_error);
}

}  // namespace

CheckpointReader::CheckpointReader(const fs::path& folder, const Manifest& manifest,
                                   base::Disk& disk)
    : label_(folder.string()), manifest_(manifest) {
  for (const ManifestTensor& tensor : manifest_.tensors) tensors_[tensor.name] = {tensor.shape, {}};
  for (std::size_t f = 0; f < manifest_.files.size(); ++f) {
    const ManifestFile& file = manifest_.files[f];
    files_.push_back(SafetensorsFile::open(folder / file.name, {}, disk));
    for (const ManifestPiece& piece : file.pieces) {
      if (piece.tensor >= manifest_.tensors.size() ||
          static_cast<int>(piece.piece.ranges.size()) !=
              manifest_.tensors[piece.tensor].shape.size())
        checkpoint_damaged(folder / kManifestName,
                           fmt::format("its pieces of {} fit no tensor", file.name));
      tensors_[manifest_.tensors[piece.tensor].name].sources.push_back({f, &piece.piece});
    }
  }
}

const Shape& CheckpointReader::shape(const std::string& name) const {
  const auto found = tensors_.find(name);
  if (found == tensors_.end())
    throw NotFound(fmt::format("checkpoint {} has no tensor {}", label_, name), "TENSOR_NOT_FOUND",
                   {{"tensor", name}});
  return found->second.shape;
}

void CheckpointReader::read(const std::string& name, const Tensor& out) const {
  HostBlocks blocks(out.context());
  read(name, out.shape(), whole_piece(out.shape()), out, blocks);
}

void CheckpointReader::read(const std::string& name, const Shape& whole, const Piece& piece,
                            const Tensor& out, HostBlocks& blocks) const {
  if (shape(name) != whole)
    throw FailedPrecondition(fmt::format("checkpoint {}: {} has shape {}, the model's is {}",
                                         label_, name, to_string(shape(name)), to_string(whole)),
                             "CHECKPOINT_MISMATCH", {{"tensor", name}});
  check_internal(piece.shape() == out.shape(), "checkpoint: a piece of {} is read into {}",
                 piece.shape(), out.shape());
  std::int64_t copied = 0;
  for (const Source& source : tensors_.at(name).sources) {
    const SafetensorsFile& file = *files_[source.file];
    const SafetensorsEntry* entry = file.find(name);
    if (entry == nullptr || numel(entry->shape) != source.piece->elements() ||
        entry->dtype != DType::kFloat32)
      throw DataLoss(fmt::format("checkpoint {}: {} does not hold its piece of {}", label_,
                                 file.label(), name),
                     "CHECKPOINT_DAMAGED", {{"tensor", name}});
    copied += read_common(blocks, out.view(), piece, file, *entry, *source.piece);
  }
  if (copied != out.numel())
    throw DataLoss(fmt::format("checkpoint {}: its files hold {} of {} elements that are needed "
                               "of {}",
                               label_, copied, out.numel(), name),
                   "CHECKPOINT_DAMAGED", {{"tensor", name}});
}

FoundCheckpoint open_checkpoint(comm::ProcessGroup& world, const fs::path& folder,
                                base::Disk& disk) {
  FoundCheckpoint found{folder, {}, {}};
  run_agreed(world, [&] { found.manifest = read_manifest(folder, disk); });
  // Digests are computed where the files are, so that they are not sent whole: ranks that read
  // their own host's disk share them.
  std::vector<double> verifies(static_cast<std::size_t>(world.size()));
  verifies[static_cast<std::size_t>(world.rank())] = disk.is_remote() ? 0.0 : 1.0;
  all_reduce(world, verifies, comm::ReduceOp::kSum);
  const auto share = std::count(verifies.begin(), verifies.begin() + world.rank(), 1.0);
  const auto shares = std::count(verifies.begin(), verifies.end(), 1.0);
  run_agreed(world, [&] {
    if (!disk.is_remote())
      verify_tensor_files(folder, found.manifest, static_cast<int>(share),
                          static_cast<int>(shares));
  });
  if (world.rank() != 0) return found;
  // A file that goes along and has changed is no reason not to go on.
  for (const ManifestFile& file : found.manifest.other_files) {
    try {
      verify_file(folder, file);
    } catch (const Error& error) {
      found.notes.push_back(
          fmt::format("{}; it holds no state of training and is not read", error.what()));
    }
  }
  return found;
}

FoundCheckpoint open_checkpoint_or_older(comm::ProcessGroup& world, const fs::path& folder,
                                         base::Disk& disk) {
  const auto step = step_of_folder_name(folder.filename().string());
  std::vector<CheckpointEntry> entries;
  run_agreed(world, [&] { entries = list_checkpoints(folder.parent_path(), disk); });
  std::erase_if(entries, [&](const CheckpointEntry& entry) { return entry.step > step; });
  if (entries.empty()) return open_checkpoint(world, folder, disk);
  std::vector<CheckpointEntry> bad;
  return newest_sound(world, entries, disk, &bad);
}

std::optional<FoundCheckpoint> find_checkpoint(comm::ProcessGroup& world,
                                               const CheckpointLocation& location,
                                               bool allow_fallback) {
  std::vector<CheckpointEntry> entries;
  run_agreed(world, [&] { entries = list_checkpoints(location.directory, location.reads()); });
  if (entries.empty()) return std::nullopt;
  if (!allow_fallback) return open_checkpoint(world, entries.back().folder, location.reads());
  std::vector<CheckpointEntry> bad;
  FoundCheckpoint found = newest_sound(world, entries, location.reads(), &bad);
  run_agreed(world, [&] {
    if (world.rank() != 0) return;
    // Out of the way, so that they are not tried again and not counted by keep_latest_k.
    FileSystem& files = location.files();
    for (const CheckpointEntry& entry : bad) {
      const fs::path aside =
          entry.folder.parent_path() / ("damaged-" + entry.folder.filename().string());
      files.remove_all(aside);
      files.rename(entry.folder, aside);
    }
  });
  return found;
}

}  // namespace meshloom::train
