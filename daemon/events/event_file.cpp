// SPDX-License-Identifier: Apache-2.0
#include "daemon/events/event_file.h"

#include <fcntl.h>
#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>

#include "daemon/base/timestamp.h"
#include "daemon/base/unique_fd.h"
#include "daemon/events/event_record.h"

namespace meshloom::events {
namespace {

constexpr const char* kPrefix = "events.out.tfevents.";
constexpr const char* kVersion = "brain.Event:2";

/// The largest time in the name of a file; -1 if there is none.
std::int64_t newest_time(const std::filesystem::path& folder) {
  std::int64_t newest = -1;
  std::error_code error;
  for (std::filesystem::directory_iterator item(folder, error), end; !error && item != end;
       item.increment(error)) {
    const std::string name = item->path().filename().string();
    if (!name.starts_with(kPrefix)) continue;
    const long long time =
        std::strtoll(name.c_str() + std::string_view(kPrefix).size(), nullptr, 10);
    newest = std::max<std::int64_t>(newest, time);
  }
  return newest;
}

}  // namespace

bool has_event_files(const std::filesystem::path& folder) { return newest_time(folder) >= 0; }

EventFile::EventFile(std::filesystem::path folder, std::string suffix, std::vector<Event> first)
    : folder_(std::move(folder)),
      suffix_(std::move(suffix)),
      first_(std::move(first)),
      path_(folder_) {}

bool EventFile::open() {
  std::error_code made;
  std::filesystem::create_directories(folder_, made);
  if (made) {
    errno = made.value();
    return false;
  }
  const double now = base::now_seconds();
  const std::int64_t time = std::max(static_cast<std::int64_t>(now), newest_time(folder_) + 1);
  const std::filesystem::path path = folder_ / fmt::format("{}{:010}.{}", kPrefix, time, suffix_);
  base::UniqueFd fd(
      ::open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_APPEND | O_CLOEXEC | O_NOFOLLOW, 0644));
  if (!fd) return false;
  Event version;
  version.set_wall_time(now);
  version.set_file_version(kVersion);
  std::string records = to_record(version);
  for (const Event& event : first_) records += to_record(event);
  base::AppendedFile file(std::move(fd), 0);
  if (!file.append(records)) {
    const int error = errno;
    std::error_code gone;
    std::filesystem::remove(path, gone);
    errno = error;
    return false;
  }
  file_.emplace(std::move(file));
  path_ = path;
  return true;
}

bool EventFile::append(const std::vector<Event>& events) {
  std::string records;
  for (const Event& event : events) records += to_record(event);
  if ((file_ || open()) && file_->append(records)) return true;
  error_ = errno;
  return false;
}

}  // namespace meshloom::events
