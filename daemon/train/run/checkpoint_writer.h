// SPDX-License-Identifier: Apache-2.0
// Writing a checkpoint: every rank its part, rank 0 the manifest, one rename at the end.
#pragma once

#include <cstdint>
#include <filesystem>
#include <set>
#include <span>
#include <string>

#include "daemon/comm/process_group.h"
#include "daemon/train/files/carried_files.h"
#include "daemon/train/files/file_system.h"
#include "daemon/train/files/manifest.h"
#include "daemon/train/files/state_tensor.h"
#include "daemon/train/files/unfinished_folder.h"

namespace meshloom::train {

struct CheckpointLocation {
  std::filesystem::path directory;         ///< of the job's checkpoints
  int keep_latest_k = 2;                   ///< 0: all
  std::set<std::int64_t> keep_steps = {};  ///< kept whatever their age, as far as they are there
  FileSystem* file_system = nullptr;       ///< null: the operating system's
  /// This rank writes its shard through these; null: file_system. Rank 0's is null.
  OutputFiles* shards = nullptr;
  base::Disk* disk = nullptr;  ///< that this rank reads; null: its host's

  FileSystem& files() const { return file_system ? *file_system : posix_file_system(); }
  base::Disk& reads() const { return disk ? *disk : base::own_disk(); }
};

/// Writes directory/step-N (N = manifest.step) and then deletes all but the latest keep_latest_k
/// and keep_steps; none if keep_latest_k is 0.
/// `manifest` comes without files and tensors; both are filled in here. Every rank of `world` calls
/// it with equal arguments (but for the tensors' contents and local parts); each writes its part of
/// every tensor, ranks that hold the same part sharing its rows; digests are computed while
/// writing, and no copy of the state is made. Protocol: everything goes to .tmp-step-N, files are
/// synced, then the manifest is written and synced, then the folder is synced, renamed and its
/// parent synced: a crash at any moment leaves the checkpoints that were there, or those and the
/// new one. If a rank fails (a full disk), all throw its error and the unfinished folder is
/// removed. The files `carried` (rank 0's count) lie beside the shards. Returns the
/// folder.
std::filesystem::path write_checkpoint(comm::ProcessGroup& world,
                                       const CheckpointLocation& location, Manifest manifest,
                                       std::span<const StateTensor> state,
                                       std::span<const CarriedFile> carried = {});

/// Puts another validation progress into the finished checkpoint of `step`, whole or not at all,
/// and deletes others as write_checkpoint does. Every rank of `world` calls it; rank 0 writes.
void rewrite_progress(comm::ProcessGroup& world, const CheckpointLocation& location,
                      std::int64_t step, const std::string& progress);

/// Writes a checkpoint as write_checkpoint does, but at exactly `folder`, without deleting others.
/// Throws AlreadyExists if it is there. `shards`: as in CheckpointLocation.
void write_checkpoint_at(comm::ProcessGroup& world, const std::filesystem::path& folder,
                         FileSystem& files, Manifest manifest, std::span<const StateTensor> state,
                         std::span<const CarriedFile> carried = {}, OutputFiles* shards = nullptr);

}  // namespace meshloom::train
