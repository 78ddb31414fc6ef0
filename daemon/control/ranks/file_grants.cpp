// SPDX-License-Identifier: Apache-2.0
#include "daemon/control/ranks/file_grants.h"

#include <algorithm>

#include "daemon/base/files.h"
#include "daemon/control/ranks/rank_command.h"
#include "daemon/train/files/paths.h"
#include "daemon/train/files/unfinished_folder.h"
#include "daemon/train/run/checkpoint_writer.h"
#include "kernels/base/error.h"

namespace meshloom::control {
namespace {

namespace fs = std::filesystem;

void add(std::set<fs::path>& paths, const fs::path& path) {
  if (!path.empty()) paths.insert(train::followed(path));
}

void add_reads(std::set<fs::path>& paths, const v1::CreateRunCommand& command) {
  const v1::RunFolders& folders = command.folders();
  for (const fs::path& folder : train::data_folders(folders.data_dir())) add(paths, folder);
  const fs::path from = folders.resume_from();
  add(paths, folders.resume_older() ? from.parent_path() : from);
  for (const std::string* path :
       {&folders.checkpoints(), &folders.model(), &command.tokenized().tokens(),
        &command.tokenized().validation_tokens(), &folders.state()})
    add(paths, *path);
  for (const std::string& path : command.tokenized().set_tokens()) add(paths, path);
}

}  // namespace

void FileGrants::sent(int rank, const v1::RankCommand& command) {
  const std::lock_guard lock(mutex_);
  Rank& known = ranks_[rank];
  const std::string run = run_of(command);
  const auto begin = [&] {
    // What ends an earlier run of this name is not to end this one.
    std::erase_if(known.ends, [&](const auto& item) { return item.second.run == run; });
    known.ends[command.seq()] = {run, true};
  };
  switch (command.verb_case()) {
    case v1::RankCommand::kCreateRun: {
      begin();
      Paths& paths = known.runs[run];
      add_reads(paths.read, command.create_run());
      add(paths.written, command.create_run().folders().checkpoints());
      break;
    }
    case v1::RankCommand::kWriteState:
      // A job's checkpoints lie where the run was told when it was made.
      if (!command.write_state().has_job())
        add(known.runs[run].written, train::unfinished_folder(command.write_state().folder()));
      break;
    case v1::RankCommand::kLoss:
      add(known.runs[run].read, command.loss().tokenized().tokens());
      break;
    case v1::RankCommand::kLoadState:
      add(known.runs[run].read, command.load_state().folder());
      break;
    case v1::RankCommand::kSample:
      if (!run.empty()) add(known.runs[run].read, command.sample().weights_folder());
      break;
    case v1::RankCommand::kDeleteRun: known.ends[command.seq()] = {run, false}; break;
    default: break;
  }
}

void FileGrants::answered(int rank, const v1::RankResult& result) {
  const std::lock_guard lock(mutex_);
  const auto known = ranks_.find(rank);
  if (known == ranks_.end()) return;
  const auto end = known->second.ends.extract(result.seq());
  if (end.empty() || (end.mapped().only_if_it_fails && !result.has_error())) return;
  known->second.runs.erase(end.mapped().run);
}

void FileGrants::left(int rank) {
  const std::lock_guard lock(mutex_);
  ranks_.erase(rank);
}

fs::path FileGrants::readable(int rank, const fs::path& path) const {
  return granted(rank, train::followed(path), &Paths::read);
}

fs::path FileGrants::writable(int rank, const fs::path& path) const {
  const fs::path file = granted(rank, train::followed(path), &Paths::written);
  if (train::is_unfinished_folder(file.parent_path()) && file.extension() == ".safetensors")
    return file;
  throw FailedPrecondition(
      fmt::format("{} is no shard of a checkpoint that is being written", base::shown(path)),
      "PERMISSION_DENIED", {{"path", base::shown(path)}});
}

fs::path FileGrants::granted(int rank, const fs::path& path,
                             std::set<fs::path> Paths::*kind) const {
  const std::lock_guard lock(mutex_);
  if (const auto known = ranks_.find(rank); known != ranks_.end())
    for (const auto& [run, paths] : known->second.runs)
      if (std::any_of((paths.*kind).begin(), (paths.*kind).end(),
                      [&](const fs::path& root) { return train::is_inside(path, root); }))
        return path;
  throw FailedPrecondition(
      fmt::format("no command has named {} to rank {}", base::shown(path), rank),
      "PERMISSION_DENIED", {{"path", base::shown(path)}, {"rank", std::to_string(rank)}});
}

}  // namespace meshloom::control
