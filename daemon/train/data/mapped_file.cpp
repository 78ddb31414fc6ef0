// SPDX-License-Identifier: Apache-2.0
#include "daemon/train/data/mapped_file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "kernels/base/error.h"

namespace meshloom::train {
namespace {

struct Descriptor {
  explicit Descriptor(int value) : value(value) {}
  ~Descriptor() {
    if (value >= 0) ::close(value);
  }
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  int value;
};

[[noreturn]] void fail(const std::filesystem::path& path, const char* what) {
  const int code = errno;
  const auto text = fmt::format("{} {}: {}", what, path.string(), std::strerror(code));
  if (code == ENOENT) throw NotFound(text, "NOT_FOUND", {{"path", path.string()}});
  throw IoError(text, "IO_ERROR", {{"path", path.string()}});
}

}  // namespace

std::shared_ptr<const MappedFile> MappedFile::open(const std::filesystem::path& path) {
  const Descriptor file(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (file.value < 0) fail(path, "cannot open");
  struct stat status {};
  if (::fstat(file.value, &status) != 0) fail(path, "cannot stat");
  check(S_ISREG(status.st_mode), "{} is not a regular file", path.string());
  const auto size = static_cast<std::size_t>(status.st_size);
  const std::byte* data = nullptr;
  if (size > 0) {
    void* mapped = ::mmap(nullptr, size, PROT_READ, MAP_SHARED, file.value, 0);
    if (mapped == MAP_FAILED) fail(path, "cannot map");
    data = static_cast<const std::byte*>(mapped);
  }
  return std::shared_ptr<const MappedFile>(new MappedFile(path, data, size));
}

MappedFile::~MappedFile() {
  if (data_ != nullptr) ::munmap(const_cast<std::byte*>(data_), size_);
}

}  // namespace meshloom::train
