// SPDX-License-Identifier: Apache-2.0
#include "daemon/control/stores/event_log.h"

#include <nlohmann/json.hpp>

#include "daemon/base/states.h"
#include "daemon/base/system_message.h"
#include "daemon/base/timestamp.h"
#include "daemon/base/utf8.h"
#include "daemon/control/stores/names.h"
#include "kernels/base/log.h"

namespace meshloom::control {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::size_t kMostText = 16 << 10;

Json event_of(const char* what, const v1::Job& job) {
  return {{"time", base::now_rfc3339_with_milliseconds()},
          {"job", parse_job_name(job.name())},
          {"attempt", job.attempt()},
          {"step", job.step()},
          {"event", what}};
}

std::string text_of(const std::string& text) { return base::printable_text(text, kMostText); }

std::string reason_of(const v1::Job& job) {
  switch (job.state()) {
    case v1::JOB_STATE_FAILED: return job.error().message();
    case v1::JOB_STATE_HELD: return job.hold_reason();
    case v1::JOB_STATE_SUCCEEDED: return job.stopped_early();
    default: return job.pause_code() == v1::PAUSE_CODE_DRAIN ? "the daemon is drained" : "";
  }
}

}  // namespace

std::string state_line(const v1::Job& job, v1::JobState before) {
  const auto name = [](v1::JobState state) { return base::table_of<v1::JobState>().name(state); };
  Json line = event_of("state", job);
  line["state"] = name(job.state());
  if (before != v1::JOB_STATE_UNSPECIFIED) line["before"] = name(before);
  if (const std::string reason = reason_of(job); !reason.empty()) line["reason"] = text_of(reason);
  return line.dump() + "\n";
}

std::string event_lines(const v1::JobEvent& event, v1::JobState before, const v1::Job& job) {
  std::string lines;
  if (event.has_job() && event.job().state() != before) lines += state_line(event.job(), before);
  if (event.has_watch()) {
    Json line = event_of("watch", job);
    line["step"] = event.watch().step();
    line["condition"] = event.watch().condition();
    line["value"] = event.watch().value();
    line["cancel"] = event.watch().cancel();
    lines += line.dump() + "\n";
  }
  if (!event.note().empty()) {
    Json line = event_of("note", job);
    line["note"] = text_of(event.note());
    lines += line.dump() + "\n";
  }
  return lines;
}

void EventLog::append(const std::string& lines) {
  if (lines.empty()) return;
  Subscribers::Due due;
  {
    const std::lock_guard lock(mutex_);
    const bool was_lost = file_.lost() > 0;
    if (!file_.append(lines) && !was_lost)
      spdlog::warn("events are not written to {}: {}", path_.string(),
                   base::system_message(file_.error()));
    subscribers_.mark_all();
    due = subscribers_.take_due();
  }
  due.notify();
}

Subscription EventLog::subscribe(std::weak_ptr<Wakeable> subscriber) {
  const std::lock_guard lock(mutex_);
  return subscribers_.add("", std::move(subscriber));
}

void EventLog::close() {
  Subscribers::Due due;
  {
    const std::lock_guard lock(mutex_);
    closed_ = true;
    subscribers_.mark_all();
    due = subscribers_.take_due();
  }
  due.notify();
}

bool EventLog::closed() const {
  const std::lock_guard lock(mutex_);
  return closed_;
}

}  // namespace meshloom::control
