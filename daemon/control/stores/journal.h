// SPDX-License-Identifier: Apache-2.0
// Journal: an append-only file of checksummed records; what was acknowledged survives kill -9 and
// power loss.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <string_view>

#include "daemon/base/unique_fd.h"

namespace meshloom::control {

/// File: 8 bytes magic, uint32 version, uint32 zero; then records of
///   uint32 length, uint32 XXH32 of (length, offset of the record), uint64 XXH3 of the payload,
///   payload
/// all little-endian. An append is one write followed by fdatasync. Behind the last record lies
/// space that the file system has set aside without making the file longer, so that a disk that
/// others have filled still takes what matters most.
///
/// Reading: an unfinished last record (a torn append that was never acknowledged) is cut off; if
/// it has its full length and only its digest is wrong, its bytes are kept beside the journal
/// first. A record that is damaged and followed by others, or a header that is damaged, throws
/// DataLoss (JOURNAL_CORRUPT) with the offset; nothing is changed then. A newer version throws
/// FailedPrecondition (JOURNAL_TOO_NEW), an older one is read and goes on as this version. Only a
/// file that does not exist is made; what cannot be read throws IoError. One thread at a time; one
/// process at a time (StateDir's lock).
class Journal {
 public:
  using Visit = std::function<void(std::string_view payload)>;

  enum class Room {
    kLeaveReserve,  ///< refused if it would use up what is set aside
    kUseReserve,
  };

  /// Opens or makes the file and hands every record to `visit`, oldest first.
  Journal(const std::filesystem::path& file, const Visit& visit);
  Journal(const Journal&) = delete;
  Journal& operator=(const Journal&) = delete;

  /// Returns once the record is on disk. Throws ResourceExhausted (DISK_FULL) or IoError, with the
  /// file as before.
  void append(std::string_view payload, Room room = Room::kUseReserve);

  /// Replaces the file by one with these records, atomically. Throws as append does, with the file
  /// as before; a disk that cannot hold both and the reserve is full.
  void rewrite(const std::function<void(const Visit& append)>& produce);

  std::uint64_t size() const { return end_; }
  /// Bytes of a torn append that opening cut off.
  std::uint64_t cut_bytes() const { return cut_bytes_; }
  /// Where they were kept: a record of its full length, but with a wrong digest.
  const std::optional<std::filesystem::path>& cut_file() const { return cut_file_; }
  /// False if the file system cannot set space aside.
  bool reserves() const { return reserves_; }

 private:
  void replay(const Visit& visit);
  void cut_tail(std::string_view tail, bool keep);
  bool try_reserve(std::uint64_t until);

  std::filesystem::path path_;
  base::UniqueFd fd_;
  std::uint64_t end_ = 0;
  std::uint64_t reserved_ = 0;  ///< up to which byte there is space
  bool reserves_ = true;
  int reserve_error_ = 0;  ///< errno of the last attempt
  std::uint64_t cut_bytes_ = 0;
  std::optional<std::filesystem::path> cut_file_;
};

}  // namespace meshloom::control
