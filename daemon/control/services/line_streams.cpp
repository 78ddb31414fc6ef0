// SPDX-License-Identifier: Apache-2.0
#include "daemon/control/services/line_streams.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <limits>
#include <nlohmann/json.hpp>

#include "daemon/base/files.h"
#include "daemon/base/states.h"
#include "daemon/control/stores/job_log.h"
#include "daemon/control/stores/names.h"

namespace meshloom::control {
namespace {

constexpr int kLineBits = 40;                 // of a revision of metrics
constexpr std::size_t kFirstRead = 64 << 10;  // and at least a line

void check_revision(std::int64_t revision) {
  check(revision >= 0, "after_revision is {}, expected 0 or more", revision);
}

}  // namespace

bool LineReader::open() {
  struct ::stat now {};
  if (::stat(path_.c_str(), &now) != 0) return fd_.get() >= 0;  // deleted: what is open is read on
  if (fd_.get() >= 0 && now.st_ino == inode_) return true;
  base::UniqueFd fresh(::open(path_.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK));
  if (fresh.get() < 0) return fd_.get() >= 0;
  if (fd_.get() >= 0) offset_ = 0;
  fd_ = std::move(fresh);
  inode_ = now.st_ino;
  return true;
}

std::vector<LineReader::Line> LineReader::read() {
  std::vector<Line> lines;
  if (!open()) return lines;
  for (std::size_t bytes = kFirstRead; lines.empty(); bytes *= 2) {
    std::string piece(bytes, '\0');
    const ::ssize_t got = ::pread(fd_.get(), piece.data(), piece.size(), offset_);
    if (got < 0) base::throw_io_error("cannot read", path_, errno);
    piece.resize(static_cast<std::size_t>(got));
    const std::int64_t first = offset_;
    for (std::size_t begin = 0, end = 0; (end = piece.find('\n', begin)) != std::string::npos;
         begin = end + 1) {
      offset_ = first + static_cast<std::int64_t>(end) + 1;
      lines.push_back({piece.substr(begin, end - begin), offset_});
    }
    if (piece.size() < bytes) break;  // the file ends here
  }
  return lines;
}

void LineReader::seek(std::int64_t offset) {
  char before = '\n';
  if (offset > 0 && (!open() || ::pread(fd_.get(), &before, 1, offset - 1) != 1 || before != '\n'))
    throw OutOfRange(fmt::format("the log has no line that ends at revision {}", offset),
                     "REVISION_IN_FUTURE", {{"field", "after_revision"}});
  offset_ = offset;
}

void LogStream::begin() {
  id_ = parse_job_name(request_.name());
  check_revision(request_.after_revision());
  subscription_ = store_.subscribe(id_, waker());
  const auto ownership = store_.ownership(id_);
  is_own_ = ownership && ownership->owner == caller().identity().owner();
  auto lines = std::make_unique<LineReader>(state_.job(id_) / kJobLog);
  lines->seek(request_.after_revision());
  lines_ = std::move(lines);
}

bool LogStream::produce() {
  if (!lines_) begin();
  // What is told of a job is in its log already.
  const bool last = !request_.follow() || base::is_final(store_.state(id_));
  auto lines = lines_->read();
  for (LineReader::Line& line : lines) {
    if (!is_own_ && is_sample_line(line.text)) continue;
    v1::StreamLogsResponse response;
    response.set_line(std::move(line.text));
    response.set_revision(line.end);
    write(std::move(response));
  }
  if (lines.empty() && last) finish();
  return !lines.empty();
}

void MetricsStream::begin() {
  id_ = parse_job_name(request_.name());
  check_revision(request_.after_revision());
  subscription_ = store_.subscribe(id_, waker());
  edit_ = request_.after_revision() >> kLineBits;
  told_ = request_.after_revision() & ((std::int64_t{1} << kLineBits) - 1);
  const v1::Job job = store_.get(id_);
  const auto marks = store_.edit_marks(id_);
  const std::int64_t newest = marks.empty() ? 0 : marks.back().number;
  // What is left of an old job is a summary, without its edits.
  const bool future =
      edit_ > newest ? !job.summary() : edit_ == newest && told_ > 2 * job.steps() + 1;
  if (future)
    throw OutOfRange(fmt::format("job \"{}\" has {} steps and {} edits, so no line has revision {}",
                                 id_, job.steps(), newest, request_.after_revision()),
                     "REVISION_IN_FUTURE", {{"field", "after_revision"}});
  if (request_.after_revision() == 0) told_ = -1;
  read_anew();
}

void MetricsStream::read_anew() {
  lines_ = std::make_unique<LineReader>(state_.job(id_) / "metrics.jsonl");
}

bool MetricsStream::produce() {
  if (!lines_) begin();
  const v1::JobState state = store_.state(id_);
  const bool last = !request_.follow() || base::is_final(state);
  // Where an attempt has ended ahead of its checkpoint the file has lines of steps that the next
  // one repeats, and drops them before it runs.
  const std::int64_t done = state == v1::JOB_STATE_RUNNING
                                ? std::numeric_limits<std::int64_t>::max()
                                : store_.get(id_).step();
  auto lines = lines_->read();
  // After the lines: an edit is known before the steps that go by it.
  bool edited = false;
  for (const JobStore::EditMark& mark : store_.edit_marks(id_)) {
    if (mark.number <= edit_) continue;
    edit_ = mark.number;
    told_ = std::min(told_, 2 * mark.after_step + 1);
    edited = true;
  }
  if (edited) {
    read_anew();
    return true;
  }
  for (LineReader::Line& line : lines) {
    const auto entry = nlohmann::json::parse(line.text, nullptr, /*allow_exceptions=*/false);
    if (!entry.is_object() || !entry.contains("step")) continue;
    const auto step = entry["step"].get<std::int64_t>();
    if (step > done) {
      read_anew();
      if (last) finish();
      return false;
    }
    const std::int64_t known = 2 * step + (entry.contains("validation_loss") ? 1 : 0);
    if (known <= told_) continue;
    told_ = known;
    v1::StreamMetricsResponse response;
    response.set_line(std::move(line.text));
    response.set_revision((edit_ << kLineBits) + known);
    write(std::move(response));
  }
  if (lines.empty() && last) finish();
  return !lines.empty();
}

}  // namespace meshloom::control
