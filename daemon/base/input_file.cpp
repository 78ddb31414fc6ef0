// SPDX-License-Identifier: Apache-2.0
#include "daemon/base/input_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>

#include "daemon/base/files.h"
#include "daemon/base/stand_in.h"
#include "kernels/base/error.h"

namespace meshloom::base {
namespace {

const char* kind_of(mode_t mode) {
  if (S_ISDIR(mode)) return "a folder";
  if (S_ISFIFO(mode)) return "a pipe";
  if (S_ISSOCK(mode)) return "a socket";
  return "a device";
}

[[noreturn]] void refuse(const std::filesystem::path& path, const char* what) {
  throw InvalidArgument(fmt::format("{} is {}, expected a regular file", shown(path), what),
                        "NOT_A_REGULAR_FILE", {{"path", shown(path)}, {"what", what}});
}

}  // namespace

InputFile::InputFile(std::filesystem::path path, Links links) : path_(std::move(path)) {
  // Nonblocking: to open a pipe that nobody writes to would wait for a writer.
  const int flags =
      O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY | (links == Links::kRefuse ? O_NOFOLLOW : 0);
  fd_ = UniqueFd(::open(path_.c_str(), flags));
  if (!fd_ && (errno == ENXIO || errno == ENODEV)) refuse(path_, "a socket or a device");
  if (!fd_) throw_input_error("cannot open", path_, errno);
  struct stat status {};
  if (::fstat(fd_.get(), &status) != 0) throw_input_error("cannot stat", path_, errno);
  if (!S_ISREG(status.st_mode)) refuse(path_, kind_of(status.st_mode));
  size_ = static_cast<std::uint64_t>(status.st_size);
  inode_ = static_cast<std::uint64_t>(status.st_ino);
}

void InputFile::read(std::uint64_t offset, std::span<std::byte> out) const {
  if (source_) return source_->read({offset, out.size(), out.size(), 1}, out);
  while (!out.empty()) {
    const ssize_t got = ::pread(fd_.get(), out.data(), out.size(), static_cast<off_t>(offset));
    if (got < 0 && errno == EINTR) continue;
    if (got < 0)
      throw_io_error(fmt::format("cannot read byte {} of", offset).c_str(), path_, errno);
    if (got == 0) {
      struct stat now {};
      const auto end =
          ::fstat(fd_.get(), &now) == 0 ? static_cast<std::uint64_t>(now.st_size) : offset;
      throw IoError(
          fmt::format("{} ends at byte {}: it had {} bytes when it was opened and was cut since",
                      shown(path_), end, size_),
          "FILE_TRUNCATED", {{"path", shown(path_)}, {"bytes", std::to_string(end)}});
    }
    offset += static_cast<std::uint64_t>(got);
    out = out.subspan(static_cast<std::size_t>(got));
  }
}

void InputFile::read_stripes(const Stripes& stripes, std::span<std::byte> out) const {
  check_internal(out.size() == stripes.total(), "{} stripes of {} bytes into {} bytes",
                 stripes.count, stripes.bytes, out.size());
  if (stripes.count == 1 || stripes.bytes == stripes.stride) return read(stripes.offset, out);
  if (source_) return source_->read(stripes, out);
  for (std::uint64_t i = 0; i < stripes.count; ++i)
    read(stripes.offset + i * stripes.stride, out.subspan(i * stripes.bytes, stripes.bytes));
}

std::string InputFile::read_text(std::uint64_t most) const {
  if (size_ > most)
    throw InvalidArgument(
        fmt::format("{} has {} bytes, at most {} are read", shown(path_), size_, most),
        "FILE_TOO_LARGE", {{"path", shown(path_)}, {"bytes", std::to_string(size_)}});
  std::string text(size_, '\0');
  read(0, std::as_writable_bytes(std::span(text)));
  refuse_git_lfs_pointer(text, shown(path_));
  return text;
}

}  // namespace meshloom::base
