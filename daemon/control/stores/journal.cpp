// SPDX-License-Identifier: Apache-2.0
#include "daemon/control/stores/journal.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>
#include <xxhash.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "daemon/base/files.h"
#include "kernels/base/error.h"

namespace meshloom::control {
namespace {

static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__,
              "records are written as they lie in memory");

constexpr char kMagic[8] = {'M', 'L', 'J', 'O', 'U', 'R', 'N', '\n'};
// 1: without states, groups and deletions; 2: without uploads, models and runs; 3: runs and jobs
// with all their parts in one record.
constexpr std::uint32_t kVersion = 5;
constexpr std::uint64_t kFileHeader = 16;
constexpr std::uint64_t kRecordHeader = 16;
constexpr std::uint64_t kReserve = 1 << 20;     // thousands of changes of state
constexpr std::size_t kRewritePiece = 1 << 20;  // of a rewrite, between two looks at its stop token

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

[[noreturn]] void corrupt(const std::filesystem::path& path, std::uint64_t offset,
                          const char* what) {
  throw DataLoss(fmt::format("journal {} is damaged at byte {}: {}; restore the file, or move it "
                             "away to start without its jobs, runs, uploads and models: their "
                             "files are kept in {}, and a start with a journal that was put back "
                             "in this one's place takes them back",
                             path.string(), offset, what, (path.parent_path() / "lost").string()),
                 "JOURNAL_CORRUPT", {{"offset", std::to_string(offset)}});
}

/// Less than `size` bytes where the file ends.
std::string read_part(int fd, std::uint64_t offset, std::size_t size,
                      const std::filesystem::path& path) {
  std::string bytes(size, '\0');
  for (std::size_t done = 0; done < bytes.size();) {
    const auto got =
        ::pread(fd, bytes.data() + done, bytes.size() - done, static_cast<off_t>(offset + done));
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) base::throw_io_error("cannot read journal", path, errno);
    if (got == 0) bytes.resize(done);
    done += static_cast<std::size_t>(got);
  }
  return bytes;
}

std::string file_header() {
  std::string header(kFileHeader, '\0');
  std::memcpy(header.data(), kMagic, sizeof kMagic);
  std::memcpy(header.data() + sizeof kMagic, &kVersion, sizeof kVersion);
  return header;
}

std::string make_record(std::string_view payload, std::uint64_t offset) {
  if (payload.size() > Journal::kLongestRecord)
    throw ResourceExhausted(fmt::format("a record of {} bytes, the journal takes at most {}",
                                        payload.size(), Journal::kLongestRecord),
                            Journal::kRecordTooLarge,
                            {{"bytes", std::to_string(payload.size())},
                             {"limit", std::to_string(Journal::kLongestRecord)}});
  RecordHeader header{static_cast<std::uint32_t>(payload.size()), 0,
                      XXH3_64bits(payload.data(), payload.size())};
  header.check = header_check(header.length, offset);
  std::string record(reinterpret_cast<const char*>(&header), sizeof header);
  return record.append(payload);
}

struct ReadRecord {
  std::optional<std::string_view> payload;  ///< nothing: the file ends in a torn append here
  bool full_length = false;                 ///< of a torn append: only its digest is wrong
};

/// Of the record whose bytes, or more, these are. It lies at `offset`.
RecordHeader parse_header(std::string_view bytes, std::uint64_t offset,
                          const std::filesystem::path& path) {
  RecordHeader header;
  std::memcpy(&header, bytes.data(), sizeof header);
  if (header.check != header_check(header.length, offset) ||
      header.length > Journal::kLongestRecord)
    corrupt(path, offset, "a record's header fails its check");
  return header;
}

/// The first record of the `rest` of the file, which begins at `offset`.
ReadRecord read_record(std::string_view rest, std::uint64_t offset,
                       const std::filesystem::path& path) {
  // A file system may show the length of an append before its bytes.
  const bool all_zero = std::all_of(rest.begin(), rest.end(), [](char c) { return c == 0; });
  if (rest.size() < kRecordHeader || all_zero) return {};
  const RecordHeader header = parse_header(rest, offset, path);
  if (rest.size() < kRecordHeader + header.length) return {};
  const std::string_view payload = rest.substr(kRecordHeader, header.length);
  if (XXH3_64bits(payload.data(), payload.size()) == header.digest) return {payload};
  if (rest.size() == kRecordHeader + header.length) return {std::nullopt, true};
  corrupt(path, offset, "a record fails its digest");
}

/// Sets space aside up to `until` without making the file longer. The errno if it cannot.
int set_aside(int fd, std::uint64_t from, std::uint64_t until) {
  int result = 0;
  do {
    result = ::fallocate(fd, FALLOC_FL_KEEP_SIZE, static_cast<off_t>(from),
                         static_cast<off_t>(until - from));
  } while (result != 0 && errno == EINTR);
  return result == 0 ? 0 : errno;
}

}  // namespace

Journal::Journal(const std::filesystem::path& file, const Visit& visit) : path_(file) {
  fd_ = base::UniqueFd(::open(path_.c_str(), O_RDWR | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK));
  if (fd_) {
    struct stat status {};
    if (::fstat(fd_.get(), &status) != 0 || !S_ISREG(status.st_mode))
      throw IoError(fmt::format("journal {} is no regular file", path_.string()));
  } else if (errno == ENOENT) {
    base::ReplacementFile made(path_);
    made.write(file_header());
    fd_ = made.commit();
    base::sync_folder(path_.parent_path());
  } else {
    base::throw_io_error("cannot open journal", path_, errno);
  }
  replay(visit);
  std::error_code ignored;  // what is in the way of a rewrite is what its failure tells of
  std::filesystem::remove(path_.string() + ".new", ignored);
  try_reserve(end_ + kReserve);
}

bool Journal::try_reserve(std::uint64_t until) {
  if (!reserves_ || until <= reserved_) return reserves_;
  for (const std::uint64_t ahead : {kReserve, std::uint64_t{0}}) {
    reserve_error_ = set_aside(fd_.get(), end_, until + ahead);
    if (reserve_error_ == 0) {
      reserved_ = until + ahead;
      return true;
    }
  }
  reserves_ = reserve_error_ != EOPNOTSUPP && reserve_error_ != ENOSYS;
  return false;
}

void Journal::replay(const Visit& visit) {
  struct stat status {};
  if (::fstat(fd_.get(), &status) != 0) base::throw_io_error("cannot read journal", path_, errno);
  const std::string file = read_part(fd_.get(), 0, static_cast<std::size_t>(status.st_size), path_);
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
  bool full_length = false;
  while (end_ < file.size()) {
    const ReadRecord record = read_record(std::string_view(file).substr(end_), end_, path_);
    full_length = record.full_length;
    if (!record.payload) break;
    visit(*record.payload);
    end_ += kRecordHeader + record.payload->size();
  }
  if (end_ < file.size()) cut_tail(std::string_view(file).substr(end_), full_length);
  if (version == kVersion) return;
  // An older daemon must not take what is appended from here on for its own.
  const std::string header = file_header();
  base::write_all_at(fd_.get(), header, 0, path_);
  base::sync_data(fd_.get(), path_);
}

void Journal::cut_tail(std::string_view tail, bool keep) {
  cut_bytes_ = tail.size();
  if (keep) {
    // The first of PATH.cut, PATH.cut-2, ... that is free: what an earlier start kept stays.
    std::filesystem::path kept = path_.string() + ".cut";
    for (int number = 2; std::filesystem::exists(std::filesystem::symlink_status(kept)); ++number)
      kept = fmt::format("{}.cut-{}", path_.string(), number);
    base::replace_file(kept, tail);
    cut_file_ = kept;
  }
  if (::ftruncate(fd_.get(), static_cast<off_t>(end_)) != 0)
    base::throw_io_error("cannot cut journal after its last whole record", path_, errno);
}

void Journal::append(std::string_view payload, Room room) {
  if (!named_) base::sync_folder(path_.parent_path());
  named_ = true;
  const std::string record = make_record(payload, end_);
  const std::uint64_t after = end_ + record.size();
  const bool reserved =
      try_reserve(after + kReserve) || (room == Room::kUseReserve && try_reserve(after));
  if (reserves_ && !reserved) base::throw_io_error("cannot write journal", path_, reserve_error_);
  try {
    base::write_all_at(fd_.get(), record, end_, path_);
    base::sync_data(fd_.get(), path_);
  } catch (...) {
    // The next append must not follow half a record. Cutting gives back what was set aside.
    reserved_ = 0;
    if (::ftruncate(fd_.get(), static_cast<off_t>(end_)) != 0)
      base::throw_io_error("cannot cut back journal", path_, errno);
    try_reserve(end_ + kReserve);
    throw;
  }
  end_ = after;
}

void Journal::switch_to(Rewrite& next) {
  next.copy_appended({});
  next.set_aside_reserve();
  fd_ = next.file_->commit();
  end_ = next.written_;
  reserved_ = next.written_ + kReserve;
  // Both files say the same until the next append, which syncs the folder first.
  named_ = false;
}

Journal::Rewrite::Rewrite(const Journal& journal,
                          const std::function<void(const Visit& append)>& produce)
    : journal_(journal),
      reserves_(journal.reserves_),
      copied_(journal.end_),
      buffer_(file_header()) {
  produce([this](std::string_view payload) { add(payload); });
  live_size_ = buffer_.size();
}

void Journal::Rewrite::add(std::string_view payload) {
  buffer_ += make_record(payload, written_ + buffer_.size());
}

void Journal::Rewrite::write(const std::stop_token& stop) {
  constexpr std::uint64_t kShortRest = kRewritePiece;
  constexpr int kMostRounds = 8;  // if the appending thread is faster it copies the rest itself
  file_.emplace(journal_.path_);
  // A disk that cannot hold it says so before it was filled and appends were refused.
  set_aside_reserve();
  flush(stop);
  buffer_.shrink_to_fit();
  for (int round = 0; round < kMostRounds; ++round) {
    copy_appended(stop);
    base::sync_data(file_->fd(), journal_.path_);
    if (journal_.size() - copied_ <= kShortRest) return;
  }
}

void Journal::Rewrite::copy_appended(const std::stop_token& stop) {
  const int from = journal_.fd_.get();
  const std::filesystem::path& path = journal_.path_;
  for (const std::uint64_t end = journal_.end_; copied_ < end;) {
    std::string record = read_part(from, copied_, kRecordHeader, path);
    if (record.size() == kRecordHeader)
      record += read_part(from, copied_ + kRecordHeader, parse_header(record, copied_, path).length,
                          path);
    const ReadRecord read = read_record(record, copied_, path);
    if (!read.payload) corrupt(path, copied_, "a record that was appended is not read back");
    add(*read.payload);
    copied_ += record.size();
    if (buffer_.size() >= kRewritePiece) flush(stop);
  }
  flush(stop);
}

void Journal::Rewrite::flush(const std::stop_token& stop) {
  for (std::string_view rest = buffer_; !rest.empty();) {
    if (stop.stop_requested()) throw Cancelled("the rewrite of the journal was stopped");
    const std::string_view piece = rest.substr(0, kRewritePiece);
    base::write_all_at(file_->fd(), piece, written_, journal_.path_);
    written_ += piece.size();
    rest.remove_prefix(piece.size());
  }
  buffer_.clear();
}

void Journal::Rewrite::set_aside_reserve() {
  if (!reserves_) return;
  const std::uint64_t until = written_ + buffer_.size() + kReserve;
  if (const int error = set_aside(file_->fd(), written_, until))
    base::throw_io_error("cannot rewrite journal", journal_.path_, error);
}

}  // namespace meshloom::control
