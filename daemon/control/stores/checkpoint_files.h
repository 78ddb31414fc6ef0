// SPDX-License-Identifier: Apache-2.0
// What checkpoints and exports lie in the state dir, and their files in order.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "daemon/base/input_file.h"
#include "daemon/control/stores/names.h"
#include "daemon/control/stores/state_dir.h"
#include "daemon/train/files/file_system.h"
#include "v1/checkpoint_service.pb.h"
#include "v1/job.pb.h"

namespace meshloom::control {

/// A checkpoint or an export that is there, without what its files tell.
struct FoundCheckpoint {
  std::filesystem::path folder;
  std::int64_t step = 0;
  int best = 0;  ///< among those that checkpoint.keep_best keeps, from 1; 0: it is none of them
  double validation_loss = 0.0;  ///< of those

  /// Its last part: "step-100", or an export's.
  std::string name() const { return folder.filename().string(); }
};
/// The complete checkpoints of a job, oldest step first, then its exports by name.
std::vector<FoundCheckpoint> find_checkpoints(const StateDir& state, const v1::Job& job);
/// Whether one of this name is behind one of the other in that order. Either may be gone.
bool comes_behind(const std::string& folder, const std::string& other);
/// With sizes and times, for which all its files are looked at.
v1::Checkpoint describe_checkpoint(const std::string& job, const FoundCheckpoint& found);

/// Steps of the complete checkpoints of a job, oldest first.
std::vector<std::int64_t> checkpoint_steps(const StateDir& state, const std::string& id);

/// Steps of those that checkpoint.keep_best keeps, best first, as the newest checkpoint knows them;
/// also such as have gone since.
std::vector<v1::BestCheckpoint> best_checkpoints(const StateDir& state, const std::string& id);

/// The newest complete checkpoint, else the export; empty if there is neither.
std::filesystem::path newest_model(const StateDir& state, const v1::Job& job);

/// The folder behind a checkpoint's name. Throws NotFound.
std::filesystem::path checkpoint_folder(const StateDir& state, const v1::Job& job,
                                        const std::string& folder);

/// One that a client names. Throws NotFound.
v1::Checkpoint describe_checkpoint(const StateDir& state, const v1::Job& job,
                                   const std::string& folder);

/// What the export of a checkpoint is called, in the job's folder: "hf-step-100",
/// "hf-step-100-bfloat16".
std::string export_folder_name(std::int64_t step, const std::string& dtype);

/// Removes exports of checkpoints that were not finished.
void remove_export_leftovers(const StateDir& state, const std::string& id);

/// Removes what a daemon that was killed has left of exports, saves and deletions in a job's
/// folder. While nobody writes there.
void remove_job_leftovers(train::FileSystem& files, const std::filesystem::path& job_folder);

/// Removes what is left over at the start of a daemon. What cannot be removed keeps no daemon from
/// starting: the log says that it stays.
void try_removal(const std::string& name, const std::function<void()>& removal);

/// As remove_job_leftovers, of states and weights in a run's folder.
void remove_run_leftovers(train::FileSystem& files, const std::filesystem::path& run_folder);

/// Where a checkpoint or an export lies, or would. `folder` is the last part of a CheckpointName.
std::filesystem::path checkpoint_path(const std::filesystem::path& job_folder,
                                      const std::string& folder);

/// The checkpoint or export below the state dir's folder of jobs that this path is of, or leads
/// into; nothing if it is elsewhere.
std::optional<CheckpointName> checkpoint_at(const std::filesystem::path& jobs_dir,
                                            const std::filesystem::path& path);

/// The paths in a config that may lead to a checkpoint or an export: to go on from, as its model,
/// as its tokenizer. Names of jobs' checkpoints are none.
std::vector<std::string> checkpoint_paths(const v1::RunConfig& config);

/// The whole name of the checkpoint or export below `jobs_dir` that such a path leads to; empty if
/// it is elsewhere. Asks the path's file system.
std::string checkpoint_name_at(const std::filesystem::path& jobs_dir,
                               const std::filesystem::path& data_dir, const std::string& path);

/// The checkpoints and exports below `jobs_dir` that a config reads, whatever it calls them, by
/// their whole names. Asks file systems.
std::vector<std::string> checkpoints_read(const std::filesystem::path& jobs_dir,
                                          const std::filesystem::path& data_dir,
                                          const v1::RunConfig& config);

/// What tells a checkpoint or an export from one that is written in its place; empty if there is
/// none.
std::string checkpoint_stamp(const std::filesystem::path& path);

/// Calls `read`, which reads the checkpoint or export in `folder` that clients call `name`. What
/// fails there after the folder was deleted is NotFound (CHECKPOINT_NOT_FOUND), not damage, which
/// is remembered of a job's (found_damage.h).
void read_checkpoint(const std::string& name, const std::filesystem::path& folder,
                     const std::function<void()>& read);

/// One open file of a checkpoint: it stays readable when the checkpoint is pruned meanwhile.
class OpenFile {
 public:
  /// Refuses links.
  OpenFile(const std::filesystem::path& root, std::string relative);

  const std::string& name() const { return name_; }
  std::int64_t size() const { return static_cast<std::int64_t>(file_.size()); }
  /// Up to `bytes` from `offset`; fewer only at the end. Throws IoError.
  std::string read(std::int64_t offset, std::size_t bytes) const;

 private:
  std::string name_;
  base::InputFile file_;
};

/// Every regular file below `folder`, by name. Throws NotFound if it has gone,
/// FailedPrecondition (FILE_NAME_NOT_UTF8) for a name that no answer could hold.
std::vector<OpenFile> open_files(const std::filesystem::path& folder);

/// Whether a job may call its export so: a folder name that is none that the daemon gives itself.
bool is_export_name(const std::string& name);

}  // namespace meshloom::control
