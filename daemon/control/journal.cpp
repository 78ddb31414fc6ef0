// SPDX-License-Identifier: Apache-2.0
#include "daemon/control/journal.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>
#include <xxhash.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <optional>

#include "kernels/base/error.h"

namespace meshloom::control {
namespace {

static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__,
              "records are written as they lie in memory");

constexpr char kMagic[8] = {'M', 'L', 'J', 'O', 'U', 'R', 'N', '\n'};
constexpr std::uint32_t kVersion = 1;
constexpr std::uint64_t kFileHeader = 16;
constexpr std::uint64_t kRecordHeader = 16;
constexpr std::uint32_t kLongestRecord = 16u << 20;

struct RecordHeader {
  std::uint32_t length;
  std::uint32_t
      check;  ///< of length and the record's place, so that a length that was damaged is noticed
  std::uint64_t digest;
};
static_assert(sizeof(RecordHeader) == kRecordHeader);

std::uint32_t header_check(std::uint32_t length, std::uint64_t offset) {
  const std::uint64_t words[2] = {length, offset};
  return XXH32(words, sizeof words, 0);
}

[[noreturn]] void throw_errno(const std::string& what, const std::filesystem::path& path) {
  const int error = errno;
  const std::string text =
      fmt::format("journal {}: {}: {}", path.string(), what, std::strerror(error));
  if (error == ENOSPC || error == EDQUOT) throw ResourceExhausted(text, "DISK_FULL");
  throw IoError(text);
}

[[noreturn]] void corrupt(const std::filesystem::path& path, std::uint64_t offset,
                          const char* what) {
  throw DataLoss(fmt::format("journal {} is damaged at byte {}: {}; restore the file, or move it "
                             "away to start without its jobs",
                             path.string(), offset, what),
                 "JOURNAL_CORRUPT", {{"offset", std::to_string(offset)}});
}

std::string read_all(int fd, const std::filesystem::path& path) {
  struct stat status {};
  if (::fstat(fd, &status) != 0) throw_errno("cannot be read", path);
  std::string bytes(static_cast<std::size_t>(status.st_size), '\0');
  for (std::size_t done = 0; done < bytes.size();) {
    const auto got =
        ::pread(fd, bytes.data() + done, bytes.size() - done, static_cast<off_t>(done));
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) throw_errno("cannot be read", path);
    if (got == 0) bytes.resize(done);
    done += static_cast<std::size_t>(got);
  }
  return bytes;
}

void write_all(int fd, std::string_view bytes, std::uint64_t offset,
               const std::filesystem::path& path) {
  while (!bytes.empty()) {
    const auto put = ::pwrite(fd, bytes.data(), bytes.size(), static_cast<off_t>(offset));
    if (put < 0 && errno == EINTR) continue;
    if (put < 0) throw_errno("cannot be written", path);
    bytes.remove_prefix(static_cast<std::size_t>(put));
    offset += static_cast<std::uint64_t>(put);
  }
}

std::string file_header() {
  std::string header(kFileHeader, '\0');
  std::memcpy(header.data(), kMagic, sizeof kMagic);
  std::memcpy(header.data() + sizeof kMagic, &kVersion, sizeof kVersion);
  return header;
}

std::string make_record(std::string_view payload, std::uint64_t offset) {
  check_internal(payload.size() <= kLongestRecord, "journal record of {} bytes", payload.size());
  RecordHeader header{static_cast<std::uint32_t>(payload.size()), 0,
                      XXH3_64bits(payload.data(), payload.size())};
  header.check = header_check(header.length, offset);
  std::string record(reinterpret_cast<const char*>(&header), sizeof header);
  return record.append(payload);
}

bool all_zero(std::string_view bytes) {
  return std::all_of(bytes.begin(), bytes.end(), [](char c) { return c == 0; });
}

/// The record at `offset`, or nothing where the file ends in a torn append there.
std::optional<std::string_view> read_record(std::string_view file, std::uint64_t offset,
                                            const std::filesystem::path& path) {
  const std::string_view rest = file.substr(offset);
  // A file system may show the length of an append before its bytes.
  if (rest.size() < kRecordHeader || all_zero(rest)) return std::nullopt;
  RecordHeader header;
  std::memcpy(&header, rest.data(), sizeof header);
  if (header.check != header_check(header.length, offset) || header.length > kLongestRecord)
    corrupt(path, offset, "a record's header fails its check");
  if (rest.size() < kRecordHeader + header.length) return std::nullopt;
  const std::string_view payload = rest.substr(kRecordHeader, header.length);
  if (XXH3_64bits(payload.data(), payload.size()) == header.digest) return payload;
  if (rest.size() == kRecordHeader + header.length) return std::nullopt;
  corrupt(path, offset, "a record fails its digest");
}

void sync_folder(const std::filesystem::path& folder) {
  const int fd = ::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (fd < 0) throw_errno("folder cannot be opened", folder);
  const int result = ::fsync(fd);
  ::close(fd);
  if (result != 0) throw_errno("folder cannot be synced", folder);
}

/// A new file with these bytes at `path`, whole or not at all. Returns it open: whoever held the
/// old file must not go on writing to what has no name any more. The folder is not synced yet.
int replace_file(const std::filesystem::path& path, std::string_view bytes) {
  const std::filesystem::path next = path.string() + ".new";
  const int fd = ::open(next.c_str(), O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
  if (fd < 0) throw_errno("cannot be made", next);
  try {
    write_all(fd, bytes, 0, next);
    if (::fsync(fd) != 0) throw_errno("cannot be synced", next);
    if (::rename(next.c_str(), path.c_str()) != 0) throw_errno("cannot be renamed", next);
  } catch (...) {
    ::close(fd);
    ::unlink(next.c_str());
    throw;
  }
  return fd;
}

int open_file(const std::filesystem::path& path) {
  const int fd = ::open(path.c_str(), O_RDWR | O_CLOEXEC | O_NOFOLLOW);
  if (fd < 0) throw_errno("cannot be opened", path);
  return fd;
}

}  // namespace

Journal::Journal(const std::filesystem::path& file, const Visit& visit) : path_(file) {
  std::error_code error;
  const bool fresh = !std::filesystem::exists(path_, error);
  fd_ = fresh ? replace_file(path_, file_header()) : open_file(path_);
  try {
    if (fresh) sync_folder(path_.parent_path());
    replay(visit);
  } catch (...) {
    ::close(fd_);
    throw;
  }
}

Journal::~Journal() { ::close(fd_); }

void Journal::replay(const Visit& visit) {
  const std::string file = read_all(fd_, path_);
  if (file.size() < kFileHeader || std::memcmp(file.data(), kMagic, sizeof kMagic) != 0)
    corrupt(path_, 0, "it does not begin as a journal");
  std::uint32_t version = 0;
  std::memcpy(&version, file.data() + sizeof kMagic, sizeof version);
  if (version > kVersion)
    throw FailedPrecondition(
        fmt::format("journal {} has version {}, this meshloomd reads up to {}: it was written by a "
                    "newer one",
                    path_.string(), version, kVersion),
        "JOURNAL_TOO_NEW", {{"version", std::to_string(version)}});
  if (version == 0) corrupt(path_, 8, "version 0");
  end_ = kFileHeader;
  while (end_ < file.size()) {
    const auto payload = read_record(file, end_, path_);
    if (!payload) break;
    visit(*payload);
    end_ += kRecordHeader + payload->size();
  }
  cut_bytes_ = file.size() - end_;
  if (cut_bytes_ > 0 && ::ftruncate(fd_, static_cast<off_t>(end_)) != 0)
    throw_errno("cannot be cut after its last whole record", path_);
}

void Journal::append(std::string_view payload) {
  const std::string record = make_record(payload, end_);
  try {
    write_all(fd_, record, end_, path_);
    if (::fdatasync(fd_) != 0) throw_errno("cannot be synced", path_);
  } catch (...) {
    // The next append must not follow half a record.
    if (::ftruncate(fd_, static_cast<off_t>(end_)) != 0) throw_errno("cannot be cut back", path_);
    throw;
  }
  end_ += record.size();
}

void Journal::rewrite(const std::function<void(const Visit& append)>& produce) {
  std::string bytes = file_header();
  produce([&](std::string_view payload) { bytes += make_record(payload, bytes.size()); });
  const int fd = replace_file(path_, bytes);
  ::close(fd_);
  fd_ = fd;
  end_ = bytes.size();
  sync_folder(path_.parent_path());
}

}  // namespace meshloom::control
