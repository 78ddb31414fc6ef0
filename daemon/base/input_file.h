// SPDX-License-Identifier: Apache-2.0
// InputFile: a file that somebody named, open for reading and never mapped.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <string>

#include "daemon/base/unique_fd.h"

namespace meshloom::base {

/// Stripes are equally long ranges of a file, each so far behind the one before: columns of a
/// matrix.
struct Stripes {
  std::uint64_t offset = 0;  ///< of the first
  std::uint64_t bytes = 0;   ///< of each
  std::uint64_t stride = 0;  ///< from the begin of one to that of the next; at least `bytes`
  std::uint64_t count = 1;

  std::uint64_t total() const { return bytes * count; }
};

/// InputFile is a regular file. Its bytes come by pread alone, so that a file that shrinks or a
/// disk that fails is an error of the read and not a signal. May be read by several threads at
/// once.
class InputFile {
 public:
  enum class Links { kFollow, kRefuse };  ///< of the path's last part

  /// Never waits for the other end of a pipe, whatever lies at the path. Throws as
  /// throw_input_error, and InvalidArgument (NOT_A_REGULAR_FILE) naming what it is instead.
  explicit InputFile(std::filesystem::path path, Links links = Links::kFollow);

  /// A source gives the bytes of a file that another host has.
  class Source {
   public:
    virtual ~Source() = default;
    /// Reads the stripes as InputFile::read_stripes does; several threads may call it at once.
    virtual void read(const Stripes& stripes, std::span<std::byte> out) const = 0;
  };
  InputFile(std::filesystem::path path, std::uint64_t size, std::shared_ptr<const Source> source)
      : path_(std::move(path)), size_(size), source_(std::move(source)) {}

  const std::filesystem::path& path() const { return path_; }
  /// Returns the bytes that it had when it was opened.
  std::uint64_t size() const { return size_; }
  /// Tells it from a file that is put in its place; 0 for one of another host.
  std::uint64_t inode() const { return inode_; }
  /// Tells whether every byte that is read comes from another host.
  bool is_remote() const { return source_ != nullptr; }

  /// Fills `out` with the bytes from `offset`. Throws IoError naming the file: FILE_TRUNCATED if
  /// it ends before, IO_ERROR if the system refuses.
  void read(std::uint64_t offset, std::span<std::byte> out) const;
  /// Fills `out` with the bytes of all stripes, one after the other, and throws as read() does. It
  /// is a single request where another host has the file. `out` has Stripes::total() bytes.
  void read_stripes(const Stripes& stripes, std::span<std::byte> out) const;
  /// Reads the whole of it. Throws InvalidArgument: FILE_TOO_LARGE if it is larger than `most`
  /// bytes, GIT_LFS_POINTER if a pointer lies in its place (stand_in.h).
  std::string read_text(std::uint64_t most) const;

 private:
  std::filesystem::path path_;
  UniqueFd fd_;
  std::uint64_t size_ = 0;
  std::uint64_t inode_ = 0;
  std::shared_ptr<const Source> source_;  ///< null: this host's
};

}  // namespace meshloom::base
