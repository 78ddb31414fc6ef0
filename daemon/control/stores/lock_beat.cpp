// SPDX-License-Identifier: Apache-2.0
#include "daemon/control/stores/lock_beat.h"

#include <fcntl.h>
#include <unistd.h>

#include <sstream>
#include <thread>

#include "daemon/base/files.h"
#include "daemon/base/host_identity.h"
#include "daemon/base/input_file.h"
#include "daemon/control/host/random_hex.h"
#include "kernels/base/error.h"
#include "kernels/base/log.h"

namespace meshloom::control {
namespace {

namespace fs = std::filesystem;
using Clock = std::chrono::steady_clock;

constexpr std::size_t kSize = 512;  // one size, so that nobody reads half of a longer one

/// Empty where it cannot be read.
std::string text_of(const fs::path& file) {
  try {
    return base::InputFile(file, base::InputFile::Links::kRefuse).read_text(2 * kSize);
  } catch (const Error&) {
    return {};
  }
}

/// What stands behind "key " at the begin of a line.
std::string value_of(const std::string& text, const std::string& key) {
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);)
    if (line.starts_with(key + " ")) return line.substr(key.size() + 1);
  return {};
}

std::string owner_text(const std::string& text) {
  const std::string pid = text.substr(0, text.find('\n'));
  if (pid.empty()) return "unknown";
  const std::string host = value_of(text, "host");
  return host.empty() ? "pid " + pid : fmt::format("pid {} on {}", pid, host);
}

[[noreturn]] void refuse(const fs::path& file, const std::string& text) {
  throw FailedPrecondition(
      fmt::format("state dir {} is in use by another meshloomd ({}): its file {} is written to; "
                  "this file system has no locks",
                  file.parent_path().string(), owner_text(text), file.filename().string()),
      "STATE_DIR_LOCKED", {{"owner", owner_text(text)}});
}

}  // namespace

std::string lock_owner(const fs::path& file) { return owner_text(text_of(file)); }

LockBeat::LockBeat(fs::path file, const Times& times, Observer* observer)
    : path_(std::move(file)),
      times_(times),
      observer_(observer),
      owner_(fmt::format("{}\nhost {}\nboot {}\nstart {}\n", ::getpid(), base::host_name(),
                         base::boot_id(), random_hex())) {
  watch();
  claim();
  ticker_ = std::make_unique<Ticker>(times_.beat, [this] { beat(); });
}

LockBeat::~LockBeat() {
  ticker_.reset();
  if (!lost_ && is_own(text_of(path_)))
    if (::truncate(path_.c_str(), 0) != 0) spdlog::warn("{} is not emptied", path_.string());
}

bool LockBeat::is_own(const std::string& text) const { return text.starts_with(owner_); }

void LockBeat::watch() const {
  const std::string first = text_of(path_);
  if (value_of(first, "beat").empty()) return;  // of a daemon that has ended, or with locks
  spdlog::info("{} was not given back by {}: it is watched for {} ms", path_.string(),
               owner_text(first), times_.still.count());
  for (const auto end = Clock::now() + times_.still; Clock::now() < end;) {
    std::this_thread::sleep_for(times_.beat / 4);
    const std::string now = text_of(path_);
    if (!now.empty() && now != first) refuse(path_, now);
  }
}

void LockBeat::claim() {
  write();
  // Another one that begins now has written before or writes behind it: the last alone goes on.
  std::this_thread::sleep_for(2 * times_.beat);
  const std::string now = text_of(path_);
  if (!is_own(now)) refuse(path_, now);
}

void LockBeat::beat() {
  if (lost_) return;
  const std::string now = text_of(path_);
  // An empty one is what a reader may see while the file is made anew; a removed one is made again.
  if (!now.empty() && !is_own(now)) {
    lost_ = true;
    if (observer_ != nullptr) observer_->lock_taken(owner_text(now));
    return;
  }
  ++number_;
  try {
    write();
    failed_ = false;
  } catch (const Error& error) {
    if (!failed_) spdlog::error("a second daemon would not be noticed: {}", error.what());
    failed_ = true;
  }
}

void LockBeat::write() const {
  std::string text = fmt::format("{}beat {}\n", owner_, number_);
  text.resize(kSize, '\n');
  const base::UniqueFd file = base::open_output(path_, O_WRONLY | O_CREAT | O_NOFOLLOW, 0600);
  base::write_all_at(file.get(), text, 0, path_);
  base::sync_data(file.get(), path_);
}

}  // namespace meshloom::control
