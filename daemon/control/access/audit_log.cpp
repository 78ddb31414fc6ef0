// SPDX-License-Identifier: Apache-2.0
#include "daemon/control/access/audit_log.h"

#include <fcntl.h>
#include <sys/stat.h>

#include <cerrno>
#include <cstring>
#include <fstream>
#include <nlohmann/json.hpp>
#include <utility>

#include "daemon/base/timestamp.h"
#include "daemon/base/utf8.h"
#include "kernels/base/log.h"

namespace meshloom::control {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t kMostKinds = 10'000;  // of calls that are thinned at once
constexpr std::size_t kLongestName = 256;   // of what callers choose

fs::path before(const fs::path& file) { return fs::path(file) += ".1"; }

bool passes(const AuditLog::Filter& filter, const std::string& line) {
  const auto parsed = nlohmann::json::parse(line, nullptr, false);
  if (!parsed.is_object()) return false;
  const auto text = [&](const char* key) { return parsed.value(key, std::string()); };
  return (filter.object.empty() || text("object") == filter.object) &&
         (filter.who.empty() || text("who") == filter.who) &&
         (filter.since.empty() || text("time") >= filter.since);
}

}  // namespace

AuditLog::AuditLog(const fs::path& file, std::int64_t most_bytes)
    : file_(file), most_bytes_(most_bytes) {
  std::error_code ignored;
  fs::create_directories(file_.parent_path(), ignored);
  const std::lock_guard lock(mutex_);
  open();
}

void AuditLog::open() {
  file_now_.reset();
  size_ = 0;
  base::UniqueFd fd(
      ::open(file_.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC | O_NOFOLLOW, 0600));
  struct ::stat now {};
  if (!fd || ::fstat(fd.get(), &now) != 0) return;
  size_ = now.st_size;
  file_now_.emplace(std::move(fd), size_);
}

bool AuditLog::admit(const Call& call, std::int64_t* left_out) {
  const auto now = std::chrono::steady_clock::now();
  if (alike_.size() > kMostKinds) alike_.clear();
  // Where nobody was proven, what is called may be anything: the address alone is told apart.
  const std::string key = call.role == "nobody"
                              ? call.from
                              : call.who + '\n' + call.from + '\n' + call.method + '\n' + call.code;
  Alike& like = alike_[key];
  if (now - like.since >= kWindow) {
    *left_out = like.left_out;
    like = {.since = now};
  }
  if (!call.always && like.written >= kMostAlike) {
    ++like.left_out;
    return false;
  }
  ++like.written;
  return true;
}

void AuditLog::write(const Call& call) {
  const std::lock_guard lock(mutex_);
  std::int64_t left_out = 0;
  if (!admit(call, &left_out)) return;
  const auto shown = [](const std::string& text) {
    return base::printable_text(text, kLongestName, false);
  };
  nlohmann::ordered_json line = {{"time", base::now_rfc3339()},
                                 {"who", shown(call.who)},
                                 {"role", call.role},
                                 {"from", call.from},
                                 {"method", call.method},
                                 {"object", shown(call.object)},
                                 {"code", call.code}};
  if (!call.reason.empty()) line["reason"] = call.reason;
  line["bytes"] = call.bytes;
  line["ms"] = static_cast<double>(call.duration.count()) / 1000.0;
  if (left_out > 0) line["left_out"] = left_out;
  append(line.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace) + '\n');
}

void AuditLog::append(const std::string& line) {
  if (size_ + static_cast<std::int64_t>(line.size()) > most_bytes_ / 2 && size_ > 0) {
    ::rename(file_.c_str(), before(file_).c_str());
    open();
  }
  if (file_now_ && file_now_->append(line)) {
    size_ += static_cast<std::int64_t>(line.size());
    return;
  }
  if (!failed_)
    spdlog::error("the audit log {} cannot be written: {}", file_.string(), std::strerror(errno));
  failed_ = true;
}

void AuditLog::read(const Filter& filter,
                    const std::function<bool(const std::string& line)>& take) const {
  std::vector<std::ifstream> files;
  {
    // Both at one moment: a rotation moves neither out of what is open.
    const std::lock_guard lock(mutex_);
    files.emplace_back(before(file_));
    files.emplace_back(file_);
  }
  for (std::ifstream& file : files)
    for (std::string line; std::getline(file, line);)
      if (passes(filter, line) && !take(line)) return;
}

}  // namespace meshloom::control
