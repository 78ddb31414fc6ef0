// SPDX-License-Identifier: Apache-2.0
// Files that are written: all bytes or an error, on disk or an error, replaced whole or not at all.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>

#include "daemon/base/unique_fd.h"

namespace meshloom::base {

/// Returns a path in a text: what is longer than 256 bytes is shortened.
std::string shown(const std::filesystem::path& path);

/// Throws what the operating system's error about a path means to whoever named it: NotFound
/// (NOT_FOUND), InvalidArgument (INVALID_PATH) for a name that is too long or links that lead in a
/// circle, FailedPrecondition (PERMISSION_DENIED), else IoError (IO_ERROR). `action` begins the
/// text: "cannot open".
[[noreturn]] void throw_input_error(const char* action, const std::filesystem::path& path,
                                    int error);
/// Throws what the operating system's error about an open file means, or about one that the program
/// itself makes, where nobody's naming is to blame: ResourceExhausted (DISK_FULL) if disk, quota or
/// the longest file are reached, else IoError (IO_ERROR).
[[noreturn]] void throw_io_error(const char* action, const std::filesystem::path& path, int error);

// --- Each throws as throw_io_error; `path` is for the text.
/// open(2) with O_CLOEXEC.
UniqueFd open_output(const std::filesystem::path& path, int flags, unsigned mode = 0);
/// Writes all bytes, at the file's position, or at `offset`.
void write_all(int fd, std::span<const std::byte> bytes, const std::filesystem::path& path);
void write_all_at(int fd, std::string_view bytes, std::uint64_t offset,
                  const std::filesystem::path& path);
/// Makes what was written survive a crash of the machine once it returns. `sync_data` leaves out
/// times and the like.
void sync_file(int fd, const std::filesystem::path& path);
void sync_data(int fd, const std::filesystem::path& path);
/// Makes the names in a folder survive a crash of the machine.
void sync_folder(const std::filesystem::path& folder);
void rename_file(const std::filesystem::path& from, const std::filesystem::path& to);

/// A replaced file outlives this once the call has returned. A disk can take seconds to sync.
enum class Outlives { kMachine, kProcess };

/// ReplacementFile is a new file that becomes `path` with commit(), whole or not at all. Until
/// then, and for ever without it, `path` is what it was. Written as PATH.new, which no link may
/// stand for.
class ReplacementFile {
 public:
  explicit ReplacementFile(const std::filesystem::path& path, unsigned mode = 0600);
  ~ReplacementFile();
  ReplacementFile(const ReplacementFile&) = delete;
  ReplacementFile& operator=(const ReplacementFile&) = delete;

  int fd() const { return fd_.get(); }
  std::uint64_t size() const { return written_ + buffer_.size(); }
  void write(std::string_view bytes);
  /// Syncs the file for kMachine and names it; the caller syncs the folder. Returns it open: who
  /// held the old file must not go on writing to what has no name any more.
  UniqueFd commit(Outlives outlives = Outlives::kMachine);

 private:
  void flush();

  std::filesystem::path path_;
  std::filesystem::path next_;
  UniqueFd fd_;
  std::uint64_t written_ = 0;
  std::string buffer_;
};

/// Replaces a file: `path` holds `text` or what it held before, also after a crash of the machine
/// or, with kProcess, of this process alone.
void replace_file(const std::filesystem::path& path, std::string_view text, unsigned mode = 0600,
                  Outlives outlives = Outlives::kMachine);

}  // namespace meshloom::base
