// SPDX-License-Identifier: Apache-2.0
// MappedFile: a whole file as read-only memory.
#pragma once

#include <cstddef>
#include <filesystem>
#include <memory>
#include <span>

namespace meshloom::train {

/// Mapped as long as the object lives; pages are read when they are touched.
class MappedFile {
 public:
  /// Throws NotFound where there is no such file, IoError (naming path and reason) where it cannot
  /// be read, InvalidArgument where it is not a regular file.
  static std::shared_ptr<const MappedFile> open(const std::filesystem::path& path);
  ~MappedFile();
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;

  const std::filesystem::path& path() const { return path_; }
  std::span<const std::byte> bytes() const { return {data_, size_}; }

 private:
  MappedFile(std::filesystem::path path, const std::byte* data, std::size_t size)
      : path_(std::move(path)), data_(data), size_(size) {}

  std::filesystem::path path_;
  const std::byte* data_;
  std::size_t size_;
};

}  // namespace meshloom::train
