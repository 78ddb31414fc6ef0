// SPDX-License-Identifier: Apache-2.0
#include "daemon/control/checkpoint_files.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "daemon/control/names.h"
#include "daemon/control/timestamp.h"
#include "daemon/train/checkpoint/manifest.h"
#include "kernels/base/error.h"

namespace meshloom::control {
namespace {

namespace fs = std::filesystem;

constexpr const char* kModelConfig = "config.json";

/// The manifest is written last: a folder that lacks it is not complete.
bool is_complete(const fs::path& checkpoint) {
  std::error_code ignored;
  return fs::exists(checkpoint / train::kManifestName, ignored);
}

/// Steps of complete checkpoints, oldest first.
std::vector<std::int64_t> complete_steps(const fs::path& checkpoints) {
  std::vector<std::int64_t> steps;
  std::error_code error;
  for (const auto& item : fs::directory_iterator(checkpoints, error)) {
    const auto step = train::step_of_folder_name(item.path().filename().string());
    if (step && is_complete(item.path())) steps.push_back(*step);
  }
  std::sort(steps.begin(), steps.end());
  return steps;
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
    checkpoint.set_create_time(to_rfc3339(std::chrono::system_clock::from_time_t(status.st_mtime)));
  return checkpoint;
}

fs::path export_folder(const StateDir& state, const v1::Job& job) {
  const std::string& name = job.resolved().export_().hf_folder();
  if (!is_export_name(name)) return {};
  const fs::path folder = state.job(parse_job_name(job.name())) / name;
  std::error_code ignored;
  return fs::exists(folder / kModelConfig, ignored) ? folder : fs::path();
}

}  // namespace

bool is_export_name(const std::string& name) {
  return is_folder_name(name) && name != "checkpoints" && !train::step_of_folder_name(name) &&
         name != "metrics.jsonl" && name != "resolved.yaml";
}

std::vector<v1::Checkpoint> list_checkpoints(const StateDir& state, const v1::Job& job) {
  const std::string id = parse_job_name(job.name());
  std::vector<v1::Checkpoint> checkpoints;
  for (const auto step : complete_steps(state.checkpoints(id)))
    checkpoints.push_back(
        describe(state.checkpoints(id) / train::checkpoint_folder_name(step), id, step));
  const fs::path exported = export_folder(state, job);
  if (!exported.empty()) checkpoints.push_back(describe(exported, id, job.step()));
  return checkpoints;
}

std::vector<std::int64_t> checkpoint_steps(const StateDir& state, const std::string& id) {
  return complete_steps(state.checkpoints(id));
}

fs::path newest_model(const StateDir& state, const v1::Job& job) {
  const std::string id = parse_job_name(job.name());
  const auto steps = complete_steps(state.checkpoints(id));
  if (!steps.empty()) return state.checkpoints(id) / train::checkpoint_folder_name(steps.back());
  return export_folder(state, job);
}

fs::path checkpoint_folder(const StateDir& state, const v1::Job& job, const std::string& folder) {
  const std::string id = parse_job_name(job.name());
  const auto step = train::step_of_folder_name(folder);
  if (step && folder == train::checkpoint_folder_name(*step)) {
    const fs::path path = state.checkpoints(id) / folder;
    if (is_complete(path)) return path;
  } else if (folder == job.resolved().export_().hf_folder()) {
    const fs::path path = export_folder(state, job);
    if (!path.empty()) return path;
  }
  throw NotFound(fmt::format("{} does not exist", checkpoint_resource(id, folder)),
                 "CHECKPOINT_NOT_FOUND", {{"job", id}, {"folder", folder}});
}

OpenFile::OpenFile(const fs::path& root, std::string relative) : name_(std::move(relative)) {
  fd_ = ::open((root / name_).c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
  struct stat status {};
  if (fd_ < 0 || ::fstat(fd_, &status) != 0) {
    const int error = errno;
    if (fd_ >= 0) ::close(fd_);
    if (error == ENOENT)
      throw NotFound("the checkpoint was deleted to make room for newer ones",
                     "CHECKPOINT_NOT_FOUND");
    throw IoError(fmt::format("{} cannot be opened: {}", name_, std::strerror(error)));
  }
  size_ = status.st_size;
}

OpenFile::~OpenFile() {
  if (fd_ >= 0) ::close(fd_);
}

OpenFile::OpenFile(OpenFile&& other) noexcept
    : name_(std::move(other.name_)), fd_(other.fd_), size_(other.size_) {
  other.fd_ = -1;
}

std::string OpenFile::read(std::int64_t offset, std::size_t bytes) const {
  std::string data(bytes, '\0');
  std::size_t done = 0;
  while (done < bytes) {
    const auto got = ::pread(fd_, data.data() + done, bytes - done,
                             static_cast<off_t>(offset) + static_cast<off_t>(done));
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) throw IoError(fmt::format("{} cannot be read: {}", name_, std::strerror(errno)));
    if (got == 0) break;
    done += static_cast<std::size_t>(got);
  }
  data.resize(done);
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
    throw NotFound("the checkpoint cannot be listed: " + error.message(), "CHECKPOINT_NOT_FOUND");
  std::sort(names.begin(), names.end());
  std::vector<OpenFile> files;
  for (auto& name : names) files.emplace_back(folder, std::move(name));
  return files;
}

}  // namespace meshloom::control
