// SPDX-License-Identifier: Apache-2.0
// PublishedFile: a file that others see once it is whole and on disk, and never before.
#pragma once

#include <cstddef>
#include <filesystem>
#include <span>
#include <string_view>

#include "daemon/base/unique_fd.h"

namespace meshloom::base {

/// The choice says what becomes of a file that has the name already.
enum class Existing { kReplace, kRefuse };

/// Names a file anew if nothing has that name, where the file system has no rename that does so. 0,
/// or the error; EEXIST if something has it.
int link_to_free_name(const std::filesystem::path& from, const std::filesystem::path& to);

/// It is written as a hidden file beside PATH, which becomes PATH with commit() and is removed with
/// the object otherwise. What a killed process left of one is removed by the next of the same path.
class PublishedFile {
 public:
  // --- Each throws as throw_io_error, naming `path`.
  explicit PublishedFile(std::filesystem::path path);
  ~PublishedFile();
  PublishedFile(const PublishedFile&) = delete;
  PublishedFile& operator=(const PublishedFile&) = delete;

  /// Returns where the bytes of `path` are until then.
  static std::filesystem::path hidden_path(const std::filesystem::path& path);

  void write(std::span<const std::byte> bytes);
  void write_at(std::string_view bytes, std::uint64_t offset);
  /// Puts what was written on disk before it returns.
  void sync();
  /// Syncs the file, names it and syncs its folder. With kRefuse a file that has come to `path`
  /// meanwhile stays: throws AlreadyExists (ALREADY_EXISTS). Throws Aborted (FILE_BUSY) if another
  /// process has begun the same path since, whose file it then is.
  void commit(Existing existing);

 private:
  bool has_hidden_name() const;

  std::filesystem::path path_, hidden_;
  UniqueFd fd_;
  bool is_done_ = false;
};

}  // namespace meshloom::base
