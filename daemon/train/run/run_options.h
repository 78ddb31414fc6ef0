// SPDX-License-Identifier: Apache-2.0
// What a run is made of beside its config: what its rank brings, folders, and how it begins.
#pragma once

#include <functional>

#include "daemon/base/disk.h"
#include "daemon/comm/process_group.h"
#include "daemon/tensor/execution_context.h"
#include "daemon/train/data/text_data.h"
#include "daemon/train/run/run_folders.h"

namespace meshloom::train {

class FileSystem;
class OutputFiles;

/// A rank brings these to its runs; they outlive the runs.
struct RankResources {
  ExecutionContext* context = nullptr;
  comm::ProcessGroup* world = nullptr;  ///< all ranks; a group of size 1 if there is only one
  /// A rank whose host does not have rank 0's files reads them from `disk`, and its shards of
  /// checkpoints go to `shards`. Null: its host's own disk.
  base::Disk* disk = nullptr;
  OutputFiles* shards = nullptr;

  base::Disk& files() const { return disk ? *disk : base::own_disk(); }
};

struct RunOptions {
  RunFolders folders;

  // --- Of what a client drives
  bool with_optimizer = true;  ///< of folders.state: also moments and step
  bool dropout = false;        ///< batches that are sent or named draw the model's dropout
  /// Rank 0: whether the batch that is being computed is to be left, which all ranks then do
  /// between two micro batches. `last`: it is asked no more, what comes later comes too late. May
  /// be empty.
  std::function<bool(bool last)> stopped = {};

  // --- Of a job, and of what is evaluated
  /// It has data of its own, config.data and config.validation, in batches of
  /// config.training.global_batch_size samples.
  bool with_data = false;
  /// The checkpoint before a damaged newest one is taken.
  bool allow_fallback = false;
  /// The tokens of the config's text, if it has some that is tokenized.
  TokenizedText text = {};
  /// Checkpoints are written through this; null: the operating system's.
  FileSystem* file_system = nullptr;
};

}  // namespace meshloom::train
