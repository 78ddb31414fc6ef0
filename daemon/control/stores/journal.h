// SPDX-License-Identifier: Apache-2.0
// Journal: an append-only file of checksummed records; what was acknowledged survives kill -9 and
// power loss.
#pragma once

#include <atomic>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <stop_token>
#include <string>
#include <string_view>

#include "daemon/base/files.h"
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
/// file that does not exist is made; what cannot be read throws IoError. One thread at a time, but
/// for a Rewrite, which may be written by a second one; one process at a time (StateDir's lock).
class Journal {
 public:
  using Visit = std::function<void(std::string_view payload)>;

  static constexpr std::size_t kLongestRecord = 16u << 20;
  /// The reason of the error that a longer one is refused with.
  static constexpr const char* kRecordTooLarge = "RECORD_TOO_LARGE";

  enum class Room {
    kLeaveReserve,  ///< refused if it would use up what is set aside
    kUseReserve,
  };

  class Rewrite;

  /// Opens or makes the file and hands every record to `visit`, oldest first. Removes what a
  /// process that was killed has left of a Rewrite.
  Journal(const std::filesystem::path& file, const Visit& visit);
  Journal(const Journal&) = delete;
  Journal& operator=(const Journal&) = delete;

  /// Returns once the record is on disk. Throws ResourceExhausted (DISK_FULL, RECORD_TOO_LARGE) or
  /// IoError, with the file as before.
  void append(std::string_view payload, Room room = Room::kUseReserve);

  /// Copies what was appended since `next` was written, and replaces the file by it, atomically.
  /// Throws as append does, with the file as before.
  void switch_to(Rewrite& next);

  /// May be called from any thread.
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
  std::atomic<std::uint64_t> end_ = 0;  ///< a Rewrite reads up to here while appends go on
  std::uint64_t reserved_ = 0;          ///< up to which byte there is space
  bool reserves_ = true;
  int reserve_error_ = 0;  ///< errno of the last attempt
  bool named_ = false;     ///< false while a crash of the machine may bring back the file before it
  std::uint64_t cut_bytes_ = 0;
  std::optional<std::filesystem::path> cut_file_;
};

/// The file that is to take the journal's place, written as PATH.new while appends go on to the
/// present one:
///   1. The appending thread makes it from records that say the same as the journal up to its
///      present end.
///   2. Another thread writes and syncs it, with a copy of each record that was appended behind
///      that end.
///   3. The appending thread copies the few that have come since, syncs, and renames (switch_to).
/// Whenever the process is killed, the file at PATH has every record that was acknowledged.
class Journal::Rewrite {
 public:
  /// `journal` must outlive this. The records are held in memory until they are written.
  Rewrite(const Journal& journal, const std::function<void(const Visit& append)>& produce);
  /// Without switch_to() the file is removed.
  ~Rewrite() = default;
  Rewrite(const Rewrite&) = delete;
  Rewrite& operator=(const Rewrite&) = delete;

  /// Once, on any thread. Throws as append does, also where the disk cannot hold both files and
  /// the reserve, and Cancelled when `stop` was requested; then it must not be switched to.
  void write(const std::stop_token& stop = {});

  /// Bytes of the records that it was made from.
  std::uint64_t live_size() const { return live_size_; }

 private:
  friend class Journal;

  void add(std::string_view payload);
  void copy_appended(const std::stop_token& stop);
  void flush(const std::stop_token& stop);
  void set_aside_reserve();

  const Journal& journal_;
  const bool reserves_;
  std::uint64_t copied_;  ///< up to which byte the journal is in this file
  std::uint64_t live_size_ = 0;
  std::uint64_t written_ = 0;
  std::string buffer_;  ///< what comes behind the written bytes
  std::optional<base::ReplacementFile> file_;
};

}  // namespace meshloom::control
