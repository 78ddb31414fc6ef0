// SPDX-License-Identifier: Apache-2.0
#include "daemon/control/stores/checkpoint_files.h"

#include <sys/stat.h>

#include <algorithm>
#include <charconv>
#include <tuple>

#include "daemon/base/file_stamp.h"
#include "daemon/base/timestamp.h"
#include "daemon/base/utf8.h"
#include "daemon/control/stores/found_damage.h"
#include "daemon/control/stores/job_log.h"
#include "daemon/control/stores/names.h"
#include "daemon/train/files/manifest.h"
#include "daemon/train/files/message_json.h"
#include "daemon/train/files/paths.h"
#include "daemon/train/files/unfinished_folder.h"
#include "kernels/base/error.h"
#include "kernels/base/log.h"

namespace meshloom::control {
namespace {

namespace fs = std::filesystem;

constexpr const char* kModelConfig = "config.json";
constexpr std::string_view kExportPrefix = "hf-step-";
constexpr const char* kCheckpoints = "checkpoints";

/// What there is in a job's folder beside exports.
bool is_taken(const std::string& name) {
  return name == kCheckpoints || train::step_of_folder_name(name) || name == "metrics.jsonl" ||
         name == "resolved.yaml" || name == "tensorboard" || name == kJobLog;
}

/// The folder of an export that is there; empty if there is none of this name.
fs::path find_export(const StateDir& state, const std::string& id, const std::string& name) {
  if (!is_folder_name(name) || is_taken(name)) return {};
  const fs::path folder = state.job(id) / name;
  std::error_code ignored;
  return fs::exists(folder / kModelConfig, ignored) ? folder : fs::path();
}

/// That of the checkpoint that was exported, or of the job's end.
std::int64_t step_of_export(const std::string& name, const v1::Job& job) {
  std::int64_t step = job.step();
  if (name.starts_with(kExportPrefix))
    std::from_chars(name.data() + kExportPrefix.size(), name.data() + name.size(), step);
  return step;
}

v1::Checkpoint describe(const fs::path& path, const std::string& job, std::int64_t step) {
  v1::Checkpoint checkpoint;
  checkpoint.set_name(checkpoint_resource(job, path.filename().string()));
  checkpoint.set_step(step);
  std::error_code error;
  for (const auto& item : fs::recursive_directory_iterator(path, error)) {
    std::error_code ignored;
    if (!item.is_regular_file(ignored)) continue;
    checkpoint.set_files(checkpoint.files() + 1);
    checkpoint.set_size_bytes(checkpoint.size_bytes() +
                              static_cast<std::int64_t>(item.file_size(ignored)));
  }
  struct stat status {};
  if (::stat(path.c_str(), &status) == 0)
    checkpoint.set_create_time(
        base::to_rfc3339(std::chrono::system_clock::from_time_t(status.st_mtime)));
  return checkpoint;
}

/// As the newest of them knows; `entries` oldest first.
std::vector<v1::BestCheckpoint> best_of(const std::vector<train::CheckpointEntry>& entries) {
  if (entries.empty()) return {};
  try {
    const v1::ValidationProgress progress = train::validation_progress_from_json(
        train::read_validation_progress(entries.back().folder));
    return {progress.best().begin(), progress.best().end()};
  } catch (const Error& error) {
    // It may have gone meanwhile, and a damaged one is for those to refuse who read its weights.
    spdlog::debug("{}: {}", entries.back().folder.string(), error.what());
    return {};
  }
}

/// What lies in the folder under names that `which` says so of.
template <typename Which>
void remove_items(train::FileSystem& files, const fs::path& folder, const Which& which) {
  std::vector<fs::path> items;
  std::error_code ignored;
  for (const auto& item : fs::directory_iterator(folder, ignored))
    if (which(item.path().filename().string())) items.push_back(item.path());
  for (const fs::path& path : items) files.remove_all(path);
}

}  // namespace

bool is_export_name(const std::string& name) {
  // Files that are replaced are written as NAME.new first.
  return is_folder_name(name) && !is_taken(name) && !name.starts_with(kExportPrefix) &&
         !name.ends_with(".new");
}

std::vector<v1::BestCheckpoint> best_checkpoints(const StateDir& state, const std::string& id) {
  return best_of(train::list_checkpoints(state.checkpoints(id)));
}

std::vector<FoundCheckpoint> find_checkpoints(const StateDir& state, const v1::Job& job) {
  const std::string id = parse_job_name(job.name());
  const auto entries = train::list_checkpoints(state.checkpoints(id));
  const auto best = best_of(entries);
  std::vector<FoundCheckpoint> all;
  for (const auto& entry : entries) {
    FoundCheckpoint& found = all.emplace_back(FoundCheckpoint{entry.folder, entry.step});
    for (std::size_t i = 0; i < best.size(); ++i) {
      if (best[i].step() != entry.step) continue;
      found.best = static_cast<int>(i + 1);
      found.validation_loss = best[i].loss();
    }
  }
  std::vector<fs::path> exports;
  std::error_code error;
  for (const auto& item : fs::directory_iterator(state.job(id), error))
    if (auto folder = find_export(state, id, item.path().filename().string()); !folder.empty())
      exports.push_back(std::move(folder));
  std::sort(exports.begin(), exports.end());
  for (const fs::path& folder : exports)
    all.push_back({folder, step_of_export(folder.filename().string(), job)});
  return all;
}

bool comes_behind(const std::string& folder, const std::string& other) {
  const auto place = [](const std::string& name) {
    const auto step = train::step_of_folder_name(name);
    return std::tuple(!step, step.value_or(0), name);
  };
  return place(folder) > place(other);
}

v1::Checkpoint describe_checkpoint(const std::string& job, const FoundCheckpoint& found) {
  v1::Checkpoint checkpoint = describe(found.folder, job, found.step);
  checkpoint.set_best(found.best);
  checkpoint.set_validation_loss(found.validation_loss);
  return checkpoint;
}

v1::Checkpoint describe_checkpoint(const StateDir& state, const v1::Job& job,
                                   const std::string& folder) {
  const auto step = train::step_of_folder_name(folder);
  return describe(checkpoint_folder(state, job, folder), parse_job_name(job.name()),
                  step ? *step : step_of_export(folder, job));
}

std::string export_folder_name(std::int64_t step, const std::string& dtype) {
  return fmt::format("{}{}{}", kExportPrefix, step, dtype == "float32" ? "" : "-" + dtype);
}

void remove_export_leftovers(const StateDir& state, const std::string& id) {
  const std::string prefix = fmt::format(".{}", kExportPrefix);
  remove_items(train::posix_file_system(), state.job(id),
               [&](const std::string& name) { return name.starts_with(prefix); });
}

void remove_job_leftovers(train::FileSystem& files, const fs::path& job_folder) {
  train::remove_leftovers(files, job_folder / kCheckpoints);
  remove_items(files, job_folder, [](const std::string& name) {
    return name.starts_with(".old-") || (name.starts_with('.') && name.ends_with(".tmp"));
  });
}

void try_removal(const std::string& name, const std::function<void()>& removal) {
  try {
    removal();
  } catch (const std::exception& error) {  // of the standard library, too
    spdlog::error("{}: what was deleted or left over stays: {}", name, error.what());
  }
}

void remove_run_leftovers(train::FileSystem& files, const fs::path& run_folder) {
  // What clients name never begins with a dot.
  for (const char* kind : {"states", "weights"})
    remove_items(files, run_folder / kind,
                 [](const std::string& name) { return name.starts_with('.'); });
}

fs::path checkpoint_path(const fs::path& job_folder, const std::string& folder) {
  const bool of_training = train::step_of_folder_name(folder).has_value();
  return (of_training ? job_folder / kCheckpoints : job_folder) / folder;
}

std::optional<CheckpointName> checkpoint_at(const fs::path& jobs_dir, const fs::path& path) {
  std::error_code ignored;
  const fs::path jobs = fs::weakly_canonical(jobs_dir, ignored);
  const fs::path below = fs::weakly_canonical(path, ignored).lexically_relative(jobs);
  std::vector<std::string> parts;
  for (const fs::path& part : below) parts.push_back(part.string());
  if (parts.size() < 2 || parts[0] == "..") return std::nullopt;
  const std::size_t last = parts[1] == kCheckpoints ? 2 : 1;
  if (parts.size() <= last || !is_folder_name(parts[last])) return std::nullopt;
  return CheckpointName{parts[0], parts[last]};
}

std::vector<std::string> checkpoint_paths(const v1::RunConfig& config) {
  std::vector<std::string> paths = {config.model().hf_folder(), config.data().tokenizer()};
  if (!names_a_job(config.checkpoint().resume_from()))
    paths.push_back(config.checkpoint().resume_from());
  std::erase(paths, "");
  return paths;
}

std::string checkpoint_name_at(const fs::path& jobs_dir, const fs::path& data_dir,
                               const std::string& path) {
  const auto found = checkpoint_at(jobs_dir, train::below_data_folders(path, data_dir));
  return found ? checkpoint_resource(found->job, found->folder) : std::string();
}

std::vector<std::string> checkpoints_read(const fs::path& jobs_dir, const fs::path& data_dir,
                                          const v1::RunConfig& config) {
  std::vector<std::string> names;
  if (names_a_job(config.checkpoint().resume_from()))
    names.push_back(config.checkpoint().resume_from());
  for (const std::string& path : checkpoint_paths(config))
    if (std::string name = checkpoint_name_at(jobs_dir, data_dir, path); !name.empty())
      names.push_back(std::move(name));
  return names;
}

std::string checkpoint_stamp(const fs::path& path) {
  const auto stamp = base::file_stamp(path / train::kManifestName);
  return stamp ? *stamp : base::file_stamp(path / kModelConfig).value_or("");
}

std::vector<std::int64_t> checkpoint_steps(const StateDir& state, const std::string& id) {
  std::vector<std::int64_t> steps;
  for (const auto& entry : train::list_checkpoints(state.checkpoints(id)))
    steps.push_back(entry.step);
  return steps;
}

fs::path newest_model(const StateDir& state, const v1::Job& job) {
  const std::string id = parse_job_name(job.name());
  const auto entries = train::list_checkpoints(state.checkpoints(id));
  if (!entries.empty()) return entries.back().folder;
  return find_export(state, id, job.resolved().export_().hf_folder());
}

fs::path checkpoint_folder(const StateDir& state, const v1::Job& job, const std::string& folder) {
  const std::string id = parse_job_name(job.name());
  const auto step = train::step_of_folder_name(folder);
  if (step && folder == train::checkpoint_folder_name(*step)) {
    const fs::path path = state.checkpoints(id) / folder;
    if (train::is_checkpoint(path)) return path;
  } else if (const fs::path path = find_export(state, id, folder); !path.empty()) {
    return path;
  }
  throw NotFound(fmt::format("{} does not exist", checkpoint_resource(id, folder)),
                 train::kCheckpointNotFound, {{"job", id}, {"folder", folder}});
}

void read_checkpoint(const std::string& name, const fs::path& folder,
                     const std::function<void()>& read) {
  const auto fail = [&] {
    // It goes by one rename: what is there is whole.
    if (std::error_code ignored; fs::exists(folder, ignored)) throw;
    throw NotFound(fmt::format("{} was deleted while it was read", name),
                   train::kCheckpointNotFound, {{"checkpoint", name}});
  };
  try {
    read();
  } catch (const DataLoss& damage) {
    if (name.starts_with("checkpoints/")) remember_damage(folder, damage.what());
    fail();
  } catch (const NotFound&) {
    fail();
  } catch (const IoError&) {
    fail();
  }
}

OpenFile::OpenFile(const fs::path& root, std::string relative)
    : name_(std::move(relative)), file_(root / name_, base::InputFile::Links::kRefuse) {}

std::string OpenFile::read(std::int64_t offset, std::size_t bytes) const {
  const std::int64_t left = std::max<std::int64_t>(size() - offset, 0);
  std::string data(std::min(bytes, static_cast<std::size_t>(left)), '\0');
  file_.read(static_cast<std::uint64_t>(offset), std::as_writable_bytes(std::span(data)));
  return data;
}

std::vector<OpenFile> open_files(const fs::path& folder) {
  std::vector<std::string> names;
  std::error_code error;
  for (const auto& item : fs::recursive_directory_iterator(folder, error)) {
    std::error_code ignored;
    if (item.is_regular_file(ignored) && !item.is_symlink(ignored))
      names.push_back(fs::relative(item.path(), folder).generic_string());
  }
  if (error)
    throw NotFound("the files cannot be listed: " + error.message(), train::kCheckpointNotFound);
  std::sort(names.begin(), names.end());
  std::vector<OpenFile> files;
  for (auto& name : names) {
    if (!base::is_utf8(name))
      throw FailedPrecondition(
          fmt::format("{}: the name is not UTF-8, so that no answer can hold it; rename the file",
                      base::printable_text(name)),
          "FILE_NAME_NOT_UTF8");
    try {
      files.emplace_back(folder, std::move(name));
    } catch (const NotFound&) {
      throw NotFound("the checkpoint was deleted to make room for newer ones",
                     train::kCheckpointNotFound);
    }
  }
  return files;
}

}  // namespace meshloom::control
