// SPDX-License-Identifier: Apache-2.0
// RunFolders: where what a run begins with and leaves lies.
#pragma once

#include <filesystem>

namespace meshloom::train {

/// RunFolders holds absolute paths, empty where there is none. Whoever makes a run fills it in
/// once, and it reaches the ranks as it is.
struct RunFolders {
  /// The config's own paths begin here, as data_folders reads it.
  std::filesystem::path data_dir;
  /// config.model.name names this folder.
  std::filesystem::path model;
  /// Whose tokenizer goes along with checkpoints and exports; empty: the model's.
  std::filesystem::path tokenizer = {};
  /// A run that a client drives begins with this: a folder that save_state wrote, on any mesh.
  /// Empty: the model's values.
  std::filesystem::path state = {};
  /// The checkpoints of a job, of which the newest is loaded.
  std::filesystem::path checkpoints = {};
  /// A checkpoint to begin with if `checkpoints` has none.
  std::filesystem::path resume_from = {};
  /// If resume_from is damaged, the newest sound one beside it that is older is taken.
  bool resume_older = false;
};

}  // namespace meshloom::train
