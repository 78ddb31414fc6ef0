// SPDX-License-Identifier: Apache-2.0
#include "daemon/base/files.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>

#include "daemon/base/system_message.h"
#include "kernels/base/error.h"

namespace meshloom::base {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t kLongestShown = 256;  // bytes of a path in a text

std::string text_of(const char* action, const fs::path& path, int error) {
  return fmt::format("{} {}: {}", action, shown(path), system_message(error));
}

Error::Metadata metadata_of(const fs::path& path, int error) {
  return {{"path", shown(path)}, {"errno", std::to_string(error)}};
}

/// Calls put(bytes) until it has taken all of them.
template <typename Put>
void put_all(std::span<const std::byte> bytes, const fs::path& path, const Put& put) {
  while (!bytes.empty()) {
    const ssize_t count = put(bytes);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) throw_io_error("cannot write", path, errno);
    bytes = bytes.subspan(static_cast<std::size_t>(count));
  }
}

}  // namespace

std::string shown(const fs::path& path) {
  const std::string text = path.string();
  if (text.size() <= kLongestShown) return text;
  return fmt::format("{}... ({} bytes)", text.substr(0, kLongestShown), text.size());
}

void throw_input_error(const char* action, const fs::path& path, int error) {
  const std::string text = text_of(action, path, error);
  const Error::Metadata metadata = metadata_of(path, error);
  switch (error) {
    case ENOENT:
    case ENOTDIR: throw NotFound(text, "NOT_FOUND", metadata);
    case ELOOP:
    case ENAMETOOLONG: throw InvalidArgument(text, "INVALID_PATH", metadata);
    case EACCES:
    case EPERM:
    case EROFS: throw FailedPrecondition(text, "PERMISSION_DENIED", metadata);
    default: throw IoError(text, "IO_ERROR", metadata);
  }
}

void throw_io_error(const char* action, const fs::path& path, int error) {
  const std::string text = text_of(action, path, error);
  const Error::Metadata metadata = metadata_of(path, error);
  if (error == ENOSPC || error == EDQUOT || error == EFBIG)
    throw ResourceExhausted(text, "DISK_FULL", metadata);
  throw IoError(text, "IO_ERROR", metadata);
}

UniqueFd open_output(const fs::path& path, int flags, unsigned mode) {
  UniqueFd fd(::open(path.c_str(), flags | O_CLOEXEC, mode));
  if (!fd) throw_io_error("cannot open", path, errno);
  return fd;
}

void write_all(int fd, std::span<const std::byte> bytes, const fs::path& path) {
  put_all(bytes, path,
          [fd](std::span<const std::byte> rest) { return ::write(fd, rest.data(), rest.size()); });
}

void write_all_at(int fd, std::string_view bytes, std::uint64_t offset, const fs::path& path) {
  const auto all = std::as_bytes(std::span(bytes));
  put_all(all, path, [&](std::span<const std::byte> rest) {
    const std::uint64_t at = offset + (all.size() - rest.size());
    return ::pwrite(fd, rest.data(), rest.size(), static_cast<off_t>(at));
  });
}

void sync_file(int fd, const fs::path& path) {
  if (::fsync(fd) != 0) throw_io_error("cannot sync", path, errno);
}

void sync_data(int fd, const fs::path& path) {
  if (::fdatasync(fd) != 0) throw_io_error("cannot sync", path, errno);
}

void sync_folder(const fs::path& folder) {
  sync_file(open_output(folder, O_RDONLY | O_DIRECTORY).get(), folder);
}

void rename_file(const fs::path& from, const fs::path& to) {
  if (::rename(from.c_str(), to.c_str()) != 0) throw_io_error("cannot rename", from, errno);
}

ReplacementFile::ReplacementFile(const fs::path& path, unsigned mode)
    : path_(path),
      next_(path.string() + ".new"),
      fd_(open_output(next_, O_RDWR | O_CREAT | O_TRUNC | O_NOFOLLOW, mode)) {}

ReplacementFile::~ReplacementFile() {
  if (fd_) ::unlink(next_.c_str());
}

void ReplacementFile::write(std::string_view bytes) {
  constexpr std::size_t kAtOnce = 1 << 20;
  buffer_.append(bytes);
  if (buffer_.size() >= kAtOnce) flush();
}

UniqueFd ReplacementFile::commit(Outlives outlives) {
  flush();
  if (outlives == Outlives::kMachine) sync_file(fd_.get(), next_);
  rename_file(next_, path_);
  return std::move(fd_);
}

void ReplacementFile::flush() {
  write_all_at(fd_.get(), buffer_, written_, next_);
  written_ += buffer_.size();
  buffer_.clear();
}

void replace_file(const fs::path& path, std::string_view text, unsigned mode, Outlives outlives) {
  ReplacementFile next(path, mode);
  next.write(text);
  next.commit(outlives);
  if (outlives == Outlives::kMachine)
    sync_folder(path.has_parent_path() ? path.parent_path() : fs::path("."));
}

}  // namespace meshloom::base
