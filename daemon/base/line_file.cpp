// SPDX-License-Identifier: Apache-2.0
#include "daemon/base/line_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>

namespace meshloom::base {
namespace {

/// Behind the last line feed; -1 with errno if it cannot be read.
std::int64_t end_of_lines(int fd) {
  struct stat status {};
  if (::fstat(fd, &status) != 0) return -1;
  std::array<char, 4096> piece;
  for (std::int64_t end = status.st_size; end > 0;) {
    const std::int64_t begin = std::max<std::int64_t>(end - std::ssize(piece), 0);
    const ssize_t got = ::pread(fd, piece.data(), static_cast<std::size_t>(end - begin), begin);
    if (got < 0) return -1;
    for (std::int64_t at = got; at > 0; --at)
      if (piece[static_cast<std::size_t>(at - 1)] == '\n') return begin + at;
    end = begin;
  }
  return 0;
}

}  // namespace

LineFile::LineFile(std::filesystem::path path) : path_(std::move(path)) {
  if (!open()) error_ = errno;
}

bool LineFile::open() {
  UniqueFd fd(::open(path_.c_str(), O_RDWR | O_CREAT | O_APPEND | O_CLOEXEC, 0644));
  if (!fd) return false;
  const std::int64_t end = end_of_lines(fd.get());
  if (end < 0) return false;
  file_.emplace(std::move(fd), end);
  return true;
}

bool LineFile::append(std::string_view lines) {
  if ((file_ || open()) && file_->append(lines)) {
    lost_ = 0;
    return true;
  }
  error_ = errno;
  lost_ += std::count(lines.begin(), lines.end(), '\n');
  return false;
}

}  // namespace meshloom::base
