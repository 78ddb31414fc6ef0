// SPDX-License-Identifier: Apache-2.0
// The lines of a job's log and of its metrics, to one client, as they are written.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "daemon/base/unique_fd.h"
#include "daemon/control/services/stream.h"
#include "daemon/control/stores/job_store.h"
#include "daemon/control/stores/state_dir.h"
#include "v1/job_service.pb.h"

namespace meshloom::control {

/// Whole lines of a file that others append to, a bounded piece at a time.
class LineReader {
 public:
  explicit LineReader(std::filesystem::path path) : path_(std::move(path)) {}

  struct Line {
    std::string text;
    std::int64_t end = 0;  ///< bytes of the file up to its end
  };
  /// What comes next: nothing where no line is whole yet or there is no file. Begins anew where
  /// the file was replaced by another.
  std::vector<Line> read();
  /// Goes on behind this byte. Throws OutOfRange (REVISION_IN_FUTURE) unless a line ends there.
  void seek(std::int64_t offset);

 private:
  bool open();

  std::filesystem::path path_;
  base::UniqueFd fd_;
  ::ino_t inode_ = 0;
  std::int64_t offset_ = 0;
};

/// StreamLogs: a revision is the byte behind the line.
class LogStream final : public Stream<v1::StreamLogsResponse> {
 public:
  LogStream(StreamHost& host, const Caller& caller, JobStore& store, const StateDir& state,
            const v1::StreamLogsRequest& request)
      : Stream(host, caller, "StreamLogs"), store_(store), state_(state), request_(request) {}

 private:
  bool produce() override;
  void begin();

  JobStore& store_;
  const StateDir& state_;
  const v1::StreamLogsRequest request_;
  std::string id_;
  bool is_own_ = false;                ///< the job is the caller's: it has samples
  std::unique_ptr<LineReader> lines_;  ///< null: not begun
  Subscription subscription_;
};

/// StreamMetrics: a line of a job is known by twice its step, and one more for a validation; a
/// revision has the number of the job's newest edit in its upper bits. Who goes on from an earlier
/// one is told anew what lies behind the edits since then: a job that has gone back to a checkpoint
/// repeats those steps by other settings.
class MetricsStream final : public Stream<v1::StreamMetricsResponse> {
 public:
  MetricsStream(StreamHost& host, const Caller& caller, JobStore& store, const StateDir& state,
                const v1::StreamMetricsRequest& request)
      : Stream(host, caller, "StreamMetrics"), store_(store), state_(state), request_(request) {}

 private:
  bool produce() override;
  void begin();
  void read_anew();

  JobStore& store_;
  const StateDir& state_;
  const v1::StreamMetricsRequest request_;
  std::string id_;
  std::int64_t told_ = 0;              ///< the last line that was told and is as it was
  std::int64_t edit_ = 0;              ///< number of the newest edit then
  std::unique_ptr<LineReader> lines_;  ///< null: not begun
  Subscription subscription_;
};

}  // namespace meshloom::control
