// SPDX-License-Identifier: Apache-2.0
// The few file operations that a checkpoint is made of, behind an interface so that tests can stop
// after any of them.
#pragma once

#include <cstddef>
#include <filesystem>
#include <memory>
#include <span>

namespace meshloom::train {

/// OutputFile is a file that is being written. Destroying it without `close` gives the file up (it
/// stays on disk, unfinished).
class OutputFile {
 public:
  virtual ~OutputFile() = default;
  virtual void write(std::span<const std::byte> bytes) = 0;
  /// Makes what was written survive a crash of the machine.
  virtual void sync() = 0;
  virtual void close() = 0;
};

/// A rank needs this to write its shard, on its own host's disk or on another one's. Throws as
/// FileSystem.
class OutputFiles {
 public:
  virtual ~OutputFiles() = default;
  /// Creates or empties the file. `expected_bytes` is reserved if the file system can, so that a
  /// full disk shows at once.
  virtual std::unique_ptr<OutputFile> create(const std::filesystem::path&,
                                             std::size_t expected_bytes) = 0;
};

/// Every call throws ResourceExhausted if the disk or quota is full, else IoError; both name
/// path and reason.
class FileSystem : public OutputFiles {
 public:
  virtual void create_directories(const std::filesystem::path&) = 0;
  /// Makes the names in a folder survive a crash.
  virtual void sync_directory(const std::filesystem::path&) = 0;
  virtual void rename(const std::filesystem::path& from, const std::filesystem::path& to) = 0;
  /// Makes `from` appear under the name `to` in one step if `to` exists; what was there is then
  /// named `from`. On file systems that cannot, `to` is removed first.
  virtual void replace_directory(const std::filesystem::path& from,
                                 const std::filesystem::path& to) = 0;
  /// Removes a file or a whole folder; nothing if it does not exist.
  virtual void remove_all(const std::filesystem::path&) = 0;
};

/// Returns the file system of the operating system. Stateless.
FileSystem& posix_file_system();

/// Gives a finished folder its name: `temporary` is synced and becomes `target` in one step, an
/// older folder of that name goes, and the parent folder is synced. A crash leaves `target` as it
/// was or as it is to be.
void put_in_place(FileSystem& files, const std::filesystem::path& temporary,
                  const std::filesystem::path& target);

}  // namespace meshloom::train
