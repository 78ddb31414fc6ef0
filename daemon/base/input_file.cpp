// SPDX-License-Identifier: Apache-2.0
#include "daemon/base/input_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "kernels/base/error.h"

namespace meshloom::base {
namespace {

constexpr std::size_t kLongestShown = 256;  // bytes of a path in a text

const char* kind_of(mode_t mode) {
  if (S_ISDIR(mode)) return "a folder";
  if (S_ISFIFO(mode)) return "a pipe";
  if (S_ISSOCK(mode)) return "a socket";
  return "a device";
}

std::string shown(const std::filesystem::path& path) {
  const std::string text = path.string();
  if (text.size() <= kLongestShown) return text;
  return fmt::format("{}... ({} bytes)", text.substr(0, kLongestShown), text.size());
}

[[noreturn]] void refuse(const std::filesystem::path& path, const char* what) {
  throw InvalidArgument(fmt::format("{} is {}, expected a regular file", shown(path), what),
                        "NOT_A_REGULAR_FILE", {{"path", shown(path)}, {"what", what}});
}

}  // namespace

void FileDescriptor::reset() {
  if (fd_ >= 0) ::close(fd_);
  fd_ = -1;
}

void throw_file_error(const char* action, const std::filesystem::path& path, int error) {
  const std::string name = shown(path);
  const Error::Metadata metadata = {{"path", name}, {"errno", std::to_string(error)}};
  const auto text = fmt::format("{} {}: {}", action, name, std::strerror(error));
  switch (error) {
    case ENOENT:
    case ENOTDIR: throw NotFound(text, "NOT_FOUND", metadata);
    case ELOOP:
    case ENAMETOOLONG: throw InvalidArgument(text, "INVALID_PATH", metadata);
    case EACCES:
    case EPERM: throw FailedPrecondition(text, "PERMISSION_DENIED", metadata);
    default: throw IoError(text, "IO_ERROR", metadata);
  }
}

InputFile::InputFile(std::filesystem::path path, Links links) : path_(std::move(path)) {
  // Nonblocking: to open a pipe that nobody writes to would wait for a writer.
  const int flags =
      O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY | (links == Links::kRefuse ? O_NOFOLLOW : 0);
  fd_ = FileDescriptor(::open(path_.c_str(), flags));
  if (fd_.get() < 0 && (errno == ENXIO || errno == ENODEV)) refuse(path_, "a socket or a device");
  if (fd_.get() < 0) throw_file_error("cannot open", path_, errno);
  struct stat status {};
  if (::fstat(fd_.get(), &status) != 0) throw_file_error("cannot stat", path_, errno);
  if (!S_ISREG(status.st_mode)) refuse(path_, kind_of(status.st_mode));
  size_ = static_cast<std::uint64_t>(status.st_size);
}

void InputFile::read(std::uint64_t offset, std::span<std::byte> out) const {
  while (!out.empty()) {
    const ssize_t got = ::pread(fd_.get(), out.data(), out.size(), static_cast<off_t>(offset));
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) {
      const int error = errno;
      throw IoError(
          fmt::format("cannot read {} at byte {}: {}", shown(path_), offset, std::strerror(error)),
          "IO_ERROR", {{"path", shown(path_)}, {"errno", std::to_string(error)}});
    }
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

std::string InputFile::read_text(std::uint64_t most) const {
  if (size_ > most)
    throw InvalidArgument(
        fmt::format("{} has {} bytes, at most {} are read", shown(path_), size_, most),
        "FILE_TOO_LARGE", {{"path", shown(path_)}, {"bytes", std::to_string(size_)}});
  std::string text(size_, '\0');
  read(0, std::as_writable_bytes(std::span(text)));
  return text;
}

}  // namespace meshloom::base
