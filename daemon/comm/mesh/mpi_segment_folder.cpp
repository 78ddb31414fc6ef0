// SPDX-License-Identifier: Apache-2.0
#include "daemon/comm/mesh/mpi_segment_folder.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <mpi.h>
#include <signal.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <cerrno>
#include <charconv>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <system_error>

#include "kernels/base/error.h"

namespace meshloom::comm {
namespace {

namespace fs = std::filesystem;

// Open MPI 4 calls its shared-memory transport vader, Open MPI 5 sm.
constexpr const char* kParameters[] = {"OMPI_MCA_btl_vader_backing_directory",
                                       "OMPI_MCA_btl_sm_backing_directory"};
constexpr const char* kSizes[] = {"OMPI_MCA_btl_vader_segment_size",
                                  "OMPI_MCA_btl_sm_segment_size"};
constexpr const char* kMemory = "/dev/shm";
constexpr std::uint64_t kMiB = std::uint64_t{1} << 20;
constexpr std::uint64_t kDefaultSegment = (OMPI_MAJOR_VERSION >= 5 ? 16 : 4) * kMiB;
/// Headers, and pages of the folders.
constexpr std::uint64_t kBesideASegment = kMiB / 16;

/// All of a text, or of a list such as Slurm's "4(x2),3" the largest number that is not a count of
/// hosts; 0 for anything else.
std::uint64_t largest_number(const std::string& text) {
  std::uint64_t largest = 0;
  for (const char* at = text.data(); *at != '\0';) {
    std::uint64_t number = 0;
    std::from_chars(at, text.data() + text.size(), number);
    largest = std::max(largest, number);
    at = std::strchr(at, ',');
    if (at++ == nullptr) break;
  }
  return largest;
}

/// How many ranks the launcher has started on this host.
int ranks_of_host(const EnvironmentLookup& variable) {
  for (const char* name : {"OMPI_COMM_WORLD_LOCAL_SIZE", "SLURM_STEP_TASKS_PER_NODE"})
    if (const std::uint64_t ranks = largest_number(variable(name).value_or("")); ranks > 0)
      return static_cast<int>(std::min<std::uint64_t>(ranks, 1 << 20));
  return launched_by_mpirun(variable) ? 2 : 1;
}

/// Why a folder cannot take so many bytes; empty if it can.
std::string why_not(const fs::path& folder, std::uint64_t bytes) {
  struct statvfs file_system {};
  if (::access(folder.c_str(), W_OK | X_OK) != 0 || ::statvfs(folder.c_str(), &file_system) != 0)
    return fmt::format("{}: {}", folder.string(), std::strerror(errno));
  const std::uint64_t room = std::uint64_t{file_system.f_bavail} * file_system.f_frsize;
  if (room >= bytes) return {};
  return fmt::format("{} has room for {:.1f} MiB", folder.string(),
                     static_cast<double>(room) / static_cast<double>(kMiB));
}

/// Removes folders of processes that were killed before they could.
void sweep(const fs::path& parent, const std::string& prefix) {
  std::error_code ignored;
  for (const auto& entry : fs::directory_iterator(parent, ignored)) {
    const std::string name = entry.path().filename();
    if (!name.starts_with(prefix)) continue;
    pid_t owner = 0;
    std::from_chars(name.data() + prefix.size(), name.data() + name.size(), owner);
    if (owner > 0 && kill(owner, 0) != 0 && errno == ESRCH) fs::remove_all(entry.path(), ignored);
  }
}

}  // namespace

SegmentRoom segment_room(const EnvironmentLookup& variable) {
  SegmentRoom room{ranks_of_host(variable), 0};
  for (const char* name : kSizes)
    room.segment_bytes = std::max(room.segment_bytes, largest_number(variable(name).value_or("")));
  if (room.segment_bytes == 0) room.segment_bytes = kDefaultSegment;
  room.segment_bytes += kBesideASegment;
  return room;
}

fs::path choose_segment_folder(const std::vector<fs::path>& folders, const SegmentRoom& room,
                               std::string* note) {
  std::vector<std::string> refusals;
  const std::string need =
      fmt::format("MPI's shared-memory files of {} ranks take {:.1f} MiB", room.ranks,
                  static_cast<double>(room.needed()) / static_cast<double>(kMiB));
  for (const fs::path& folder : folders) {
    const std::string refusal = why_not(folder, room.needed());
    if (refusal.empty()) {
      if (!refusals.empty())
        *note =
            fmt::format("{}: {}; they are in {}", need, fmt::join(refusals, ", "), folder.string());
      return folder;
    }
    refusals.push_back(refusal);
  }
  throw ResourceExhausted(
      fmt::format("{}: {}; make {} larger (docker run --shm-size), or name a folder with room in "
                  "{} (Open MPI 5: {})",
                  need, fmt::join(refusals, ", "), folders.front().string(), kParameters[0],
                  kParameters[1]),
      "MPI_SEGMENTS_NO_ROOM",
      {{"bytes", std::to_string(room.needed())},
       {"ranks", std::to_string(room.ranks)},
       {"folders", fmt::format("{}", fmt::join(refusals, ", "))}});
}

MpiSegmentFolder::MpiSegmentFolder() {
  for (const char* parameter : kParameters)
    if (std::getenv(parameter) != nullptr) return;
  const SegmentRoom room = segment_room(process_environment());
  if (room.ranks == 1) return;
  std::error_code ignored;
  const char* session = std::getenv("PMIX_SERVER_TMPDIR");
  std::vector<fs::path> folders{kMemory};
  if (session != nullptr) folders.emplace_back(session);
  folders.push_back(fs::temp_directory_path(ignored));
  const fs::path parent = choose_segment_folder(folders, room, &note_);
  // Folders begin with this and the owner's process id. The namespace is in it, since containers
  // may share /dev/shm, but not their process ids.
  std::string pids = fs::read_symlink("/proc/self/ns/pid", ignored).string();  // "pid:[123]"
  std::erase_if(pids, [](unsigned char c) { return std::isdigit(c) == 0; });
  const std::string begin = fmt::format("meshloom-mpi-{}-{}-", getuid(), pids);
  sweep(parent, begin);
  std::string folder = (parent / fmt::format("{}{}-XXXXXX", begin, getpid())).string();
  if (mkdtemp(folder.data()) == nullptr)
    throw IoError(fmt::format("cannot make a folder for MPI's shared-memory files in {}: {}",
                              parent.string(), std::strerror(errno)));
  memory_ = name_ = folder;
  if (session != nullptr && parent != session) {
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
