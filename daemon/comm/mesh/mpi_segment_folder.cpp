// SPDX-License-Identifier: Apache-2.0
#include "daemon/comm/mesh/mpi_segment_folder.h"

#include <fmt/format.h>
#include <signal.h>
#include <unistd.h>

#include <cctype>
#include <cerrno>
#include <charconv>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <system_error>

namespace meshloom::comm {
namespace {

namespace fs = std::filesystem;

// Open MPI 4 calls its shared-memory transport vader, Open MPI 5 sm.
constexpr const char* kParameters[] = {"OMPI_MCA_btl_vader_backing_directory",
                                       "OMPI_MCA_btl_sm_backing_directory"};
constexpr const char* kMemory = "/dev/shm";

/// Removes folders of processes that were killed before they could.
void sweep(const std::string& prefix) {
  std::error_code ignored;
  for (const auto& entry : fs::directory_iterator(kMemory, ignored)) {
    const std::string name = entry.path().filename();
    if (!name.starts_with(prefix)) continue;
    pid_t owner = 0;
    std::from_chars(name.data() + prefix.size(), name.data() + name.size(), owner);
    if (owner > 0 && kill(owner, 0) != 0 && errno == ESRCH) fs::remove_all(entry.path(), ignored);
  }
}

}  // namespace

MpiSegmentFolder::MpiSegmentFolder() {
  for (const char* parameter : kParameters)
    if (std::getenv(parameter) != nullptr) return;
  // Folders begin with this and the owner's process id. The namespace is in it, since containers
  // may share /dev/shm, but not their process ids.
  std::error_code ignored;
  std::string pids = fs::read_symlink("/proc/self/ns/pid", ignored).string();  // "pid:[123]"
  std::erase_if(pids, [](unsigned char c) { return std::isdigit(c) == 0; });
  const std::string begin = fmt::format("meshloom-mpi-{}-{}-", getuid(), pids);
  sweep(begin);
  std::string folder = fmt::format("{}/{}{}-XXXXXX", kMemory, begin, getpid());
  if (mkdtemp(folder.data()) == nullptr) return;
  memory_ = name_ = folder;
  if (const char* session = std::getenv("PMIX_SERVER_TMPDIR"); session != nullptr) {
    const fs::path link = fs::path(session) / fs::path(folder).filename();
    std::error_code error;
    fs::create_directory_symlink(folder, link, error);
    if (!error) name_ = link;
  }
  for (const char* parameter : kParameters) setenv(parameter, name_.c_str(), 1);
}

MpiSegmentFolder::~MpiSegmentFolder() {
  if (memory_.empty()) return;
  std::error_code ignored;
  fs::remove_all(memory_, ignored);
  fs::remove_all(name_, ignored);
}

void MpiSegmentFolder::hide() {
  if (memory_.empty()) return;
  std::error_code ignored;
  for (const auto& entry : fs::recursive_directory_iterator(memory_, ignored))
    if (entry.is_regular_file(ignored)) files_.push_back(fs::relative(entry.path(), memory_));
  fs::remove_all(memory_, ignored);
  fs::remove_all(name_, ignored);
  // Programs that this one starts are not to look there.
  for (const char* parameter : kParameters) unsetenv(parameter);
}

void MpiSegmentFolder::show() {
  std::error_code ignored;
  for (const std::string& file : files_) {
    const fs::path path = fs::path(name_) / file;
    fs::create_directories(path.parent_path(), ignored);
    std::ofstream(path).flush();
  }
}

}  // namespace meshloom::comm
