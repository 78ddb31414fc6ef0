// SPDX-License-Identifier: Apache-2.0
#include "daemon/events/job_events.h"

#include <fmt/format.h>

#include <algorithm>
#include <fstream>
#include <nlohmann/json.hpp>

#include "daemon/base/message_printer.h"
#include "daemon/base/system_message.h"
#include "daemon/base/timestamp.h"
#include "daemon/events/job_texts.h"
#include "daemon/events/metrics_event.h"
#include "kernels/base/log.h"

namespace meshloom::events {
namespace {

constexpr std::size_t kLinesAtOnce = 1000;

std::string config_text(const v1::Job& job) {
  v1::JobSpec spec = job.spec();
  *spec.mutable_run() = job.resolved();
  return verbatim(base::to_yaml(spec));
}

std::string list_of(const v1::Job& job) {
  std::string list;
  for (const std::string& note : job.notes()) list += fmt::format("- {}\n", note);
  return list;
}

std::vector<Event> first_events(const v1::Job& job, std::int64_t after, bool is_first) {
  std::vector<Event> events;
  if (!is_first) events.push_back(start_event(after));
  const std::int64_t step = std::max<std::int64_t>(after, 0);
  events.push_back(text_event("config", config_text(job), step));
  if (!job.notes().empty()) events.push_back(text_event("notes", list_of(job), step));
  // The plugin takes the first of a folder.
  if (is_first) events.push_back(hparams_event(job));
  return events;
}

}  // namespace

JobEvents::JobEvents(const std::filesystem::path& folder, const v1::Job& job, std::int64_t after,
                     std::int64_t interval)
    : is_first_(!has_event_files(folder)),
      interval_(interval),
      file_(folder, fmt::format("meshloom.{}", job.attempt()),
            first_events(job, after, is_first_)) {
  write({});
}

void JobEvents::add(const std::optional<Event>& event) {
  if (!event) return;
  if (is_validation(*event) || event->step() % interval_ == 0) write({*event});
}

void JobEvents::line(const nlohmann::ordered_json& line) { add(metrics_event(line)); }

void JobEvents::line(const std::string& line) { add(metrics_event(line)); }

void JobEvents::lines_of(const std::filesystem::path& path) {
  std::ifstream file(path);
  std::vector<Event> events;
  for (std::string text; std::getline(file, text);) {
    auto event = metrics_event(text);
    if (!event || (!is_validation(*event) && event->step() % interval_ != 0)) continue;
    events.push_back(*std::move(event));
    if (events.size() < kLinesAtOnce) continue;
    write(events);
    events.clear();
  }
  write(events);
}

void JobEvents::plan(const std::string& plan, std::int64_t step) {
  if (!plan.empty()) write({text_event("plan", verbatim(plan), step)});
}

void JobEvents::note(const std::string& note, std::int64_t step) {
  write({text_event("notes", note, step)});
}

void JobEvents::samples(std::span<const v1::DrawnSample> samples) {
  std::vector<Event> events;
  for (const v1::DrawnSample& sample : samples)
    events.push_back(text_event(fmt::format("samples/{}", events.size() + 1),
                                verbatim(sample.text()), sample.step()));
  write(events);
}

void JobEvents::bad_step(std::int64_t step, double loss, double grad_norm) {
  Event event;
  event.set_wall_time(base::now_seconds());
  event.set_step(step);
  for (const auto& [tag, value] :
       {std::pair("train/loss", loss), std::pair("train/grad_norm", grad_norm)}) {
    Summary::Value& told = *event.mutable_summary()->add_value();
    told.set_tag(tag);
    told.set_simple_value(static_cast<float>(value));
  }
  write({event});
}

void JobEvents::go_back(std::int64_t after) { write({start_event(after)}); }

void JobEvents::end(v1::JobState state) { write({hparams_end_event(state)}); }

void JobEvents::write(const std::vector<Event>& events) {
  const bool taken = file_.append(events);
  if (taken == !in_trouble_) return;
  in_trouble_ = !taken;
  if (taken)
    spdlog::warn("events are written to {} again: some are missing", file_.path().string());
  else
    spdlog::warn("events are not written to {}: {}", file_.path().string(),
                 base::system_message(file_.error()));
}

}  // namespace meshloom::events
