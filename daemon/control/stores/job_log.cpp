// SPDX-License-Identifier: Apache-2.0
#include "daemon/control/stores/job_log.h"

#include <algorithm>
#include <cstring>

#include "daemon/base/line_file.h"
#include "daemon/base/states.h"
#include "daemon/base/system_message.h"
#include "daemon/base/timestamp.h"
#include "kernels/base/log.h"

namespace meshloom::control {
namespace {

std::string line_of(std::string text) {
  std::replace(text.begin(), text.end(), '\n', ' ');
  return fmt::format("{} {}\n", base::now_rfc3339(), text);
}

constexpr const char* kSample = "sample at step ";

}  // namespace

bool is_sample_line(const std::string& line) {
  const auto time = line.find(' ');
  return time != std::string::npos && line.compare(time + 1, std::strlen(kSample), kSample) == 0;
}

std::string job_log_lines(const v1::JobEvent& event, v1::JobState before) {
  std::string lines;
  if (event.has_job() && event.job().state() != before) {
    const v1::Job& job = event.job();
    std::string text =
        fmt::format("{} at step {} of {}", base::table_of<v1::JobState>().name(job.state()),
                    job.step(), job.steps());
    if (job.state() == v1::JOB_STATE_FAILED) text += ": " + job.error().message();
    if (job.state() == v1::JOB_STATE_HELD) text += ": " + job.hold_reason();
    lines += line_of(std::move(text));
  }
  if (event.has_sample())
    lines +=
        line_of(fmt::format("{}{}: {}", kSample, event.sample().step(), event.sample().text()));
  if (!event.note().empty()) lines += line_of(event.note());
  return lines;
}

void append_job_log(const std::filesystem::path& folder, const std::string& lines) {
  if (lines.empty()) return;
  std::error_code error;
  std::filesystem::create_directories(folder, error);
  base::LineFile file(folder / kJobLog);
  if (!file.append(lines))
    spdlog::warn("{}: {} lines are not written: {}", file.path().string(), file.lost(),
                 base::system_message(file.error()));
}

}  // namespace meshloom::control
