// SPDX-License-Identifier: Apache-2.0
// Journal: an append-only file of checksummed records; what was acknowledged survives kill -9 and
// power loss.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>
#include <string_view>

namespace meshloom::control {

/// File: 8 bytes magic, uint32 version, uint32 zero; then records of
///   uint32 length, uint32 XXH32 of (length, offset of the record), uint64 XXH3 of the payload,
///   payload
/// all little-endian. An append is one write followed by fdatasync.
///
/// Reading: an unfinished last record (a torn append that was never acknowledged) is cut off. A
/// record that is damaged and followed by others, or a header that is damaged, throws DataLoss
/// (JOURNAL_CORRUPT) with the offset; nothing is changed then. A newer version throws
/// FailedPrecondition (JOURNAL_TOO_NEW). One thread at a time; one process at a time (StateDir's
/// lock).
class Journal {
 public:
  using Visit = std::function<void(std::string_view payload)>;

  /// Opens or makes the file and hands every record to `visit`, oldest first.
  Journal(const std::filesystem::path& file, const Visit& visit);
  ~Journal();
  Journal(const Journal&) = delete;
  Journal& operator=(const Journal&) = delete;

  /// Returns once the record is on disk. Throws ResourceExhausted (disk full) or IoError, with the
  /// file as before.
  void append(std::string_view payload);

  /// Replaces the file by one with these records, atomically.
  void rewrite(const std::function<void(const Visit& append)>& produce);

  /// Bytes of a torn append that opening cut off.
  std::uint64_t cut_bytes() const { return cut_bytes_; }

 private:
  void replay(const Visit& visit);

  std::filesystem::path path_;
  int fd_ = -1;
  std::uint64_t end_ = 0;
  std::uint64_t cut_bytes_ = 0;
};

}  // namespace meshloom::control
