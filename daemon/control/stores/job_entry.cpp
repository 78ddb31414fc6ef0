// SPDX-License-Identifier: Apache-2.0
#include "daemon/control/stores/job_entry.h"

#include <algorithm>
#include <array>
#include <numeric>

#include "daemon/base/states.h"
#include "daemon/control/stores/event_log.h"
#include "daemon/control/stores/job_log.h"
#include "daemon/control/stores/names.h"
#include "kernels/base/error.h"

namespace meshloom::control {
namespace {

constexpr std::size_t kHistory = 4096;

/// Fields that summaries lack.
constexpr std::array kHeavy = {v1::Job::kSpecFieldNumber,   v1::Job::kResolvedFieldNumber,
                               v1::Job::kNotesFieldNumber,  v1::Job::kSampleFieldNumber,
                               v1::Job::kPlanFieldNumber,   v1::Job::kEditsFieldNumber,
                               v1::Job::kSamplesFieldNumber};

/// What an event that is told changes in the job that is told.
void apply_event(const v1::JobEvent& event, v1::Job* told) {
  if (event.has_job()) *told = event.job();
  if (event.has_step()) {
    told->set_step(event.step().step());
    *told->mutable_last_step() = event.step();
  }
  if (event.has_tokenizing()) *told->mutable_tokenizing() = event.tokenizing();
  if (event.has_validation()) {
    if (!told->has_first_validation()) *told->mutable_first_validation() = event.validation();
    *told->mutable_last_validation() = event.validation();
  }
  if (event.has_sample()) {
    auto& samples = *told->mutable_samples();
    if (!samples.empty() && samples.Get(0).step() != event.sample().step()) samples.Clear();
    *samples.Add() = event.sample();
  }
  if (!event.note().empty()) keep_first_note(event.note(), told->mutable_notes());
  told->set_revision(event.revision());
}

}  // namespace

SharedJobConfig take_config(v1::Job* job, std::vector<std::int64_t> edit_numbers) {
  if (!job->spec().has_run() && !job->has_resolved()) return nullptr;
  auto config = std::make_shared<JobConfig>();
  config->run.Swap(job->mutable_spec()->mutable_run());
  config->resolved.Swap(job->mutable_resolved());
  config->edits.Swap(job->mutable_edits());
  const auto edits = static_cast<std::size_t>(config->edits.size());
  if (edit_numbers.size() != edits) {
    edit_numbers.resize(edits);
    std::iota(edit_numbers.begin(), edit_numbers.end(), 1);
  }
  config->edit_numbers = std::move(edit_numbers);
  config->step_limit = job->spec().step_limit();
  config->time_limit_seconds = job->spec().time_limit_seconds();
  job->mutable_spec()->clear_run();
  job->clear_resolved();
  return config;
}

void put_config(const SharedJobConfig& config, v1::Job* job) {
  if (!config) return;
  *job->mutable_spec()->mutable_run() = config->run;
  *job->mutable_resolved() = config->resolved;
  *job->mutable_edits() = config->edits;
}

void put_config(const SharedJobConfig& config, v1::JournalRecord* record) {
  if (!config) return;
  put_config(config, record->mutable_job());
  record->mutable_job_edit_numbers()->Assign(config->edit_numbers.begin(),
                                             config->edit_numbers.end());
}

v1::Job summary_of(const v1::Job& job) {
  using Field = google::protobuf::FieldDescriptor;
  v1::Job summary;
  const auto* reflection = job.GetReflection();
  std::vector<const Field*> fields;
  reflection->ListFields(job, &fields);
  for (const Field* field : fields) {
    if (std::find(kHeavy.begin(), kHeavy.end(), field->number()) != kHeavy.end()) continue;
    if (field->number() == v1::Job::kSharedWithFieldNumber) {
      *summary.mutable_shared_with() = job.shared_with();
      continue;
    }
    switch (field->cpp_type()) {
      case Field::CPPTYPE_MESSAGE:
        reflection->MutableMessage(&summary, field)->CopyFrom(reflection->GetMessage(job, field));
        break;
      case Field::CPPTYPE_STRING:
        reflection->SetString(&summary, field, reflection->GetString(job, field));
        break;
      case Field::CPPTYPE_INT64:
        reflection->SetInt64(&summary, field, reflection->GetInt64(job, field));
        break;
      case Field::CPPTYPE_ENUM:
        reflection->SetEnumValue(&summary, field, reflection->GetEnumValue(job, field));
        break;
      case Field::CPPTYPE_DOUBLE:
        reflection->SetDouble(&summary, field, reflection->GetDouble(job, field));
        break;
      case Field::CPPTYPE_BOOL:
        reflection->SetBool(&summary, field, reflection->GetBool(job, field));
        break;
      default: throw InternalError("Job." + field->name() + " has a type that summaries lack");
    }
  }
  summary.mutable_spec()->set_name(job.spec().name());
  *summary.mutable_spec()->mutable_labels() = job.spec().labels();
  summary.mutable_spec()->set_step_limit(job.spec().step_limit());
  summary.mutable_spec()->set_time_limit_seconds(job.spec().time_limit_seconds());
  return summary;
}

v1::Job without_folders(v1::Job job) {
  job.clear_output_dir();
  job.set_hf_folder(std::filesystem::path(job.hf_folder()).filename().string());
  return job;
}

v1::Job without_parts(v1::Job job) {
  job.clear_notes();
  job.clear_samples();
  return without_folders(std::move(job));
}

void set_folders(v1::Job* job, const std::filesystem::path& folder) {
  job->set_output_dir(folder.string());
  if (job->hf_folder().empty()) return;
  job->set_hf_folder((folder / std::filesystem::path(job->hf_folder()).filename()).string());
}

JobEntry::JobEntry(v1::Job from, std::int64_t order)
    : job(std::move(from)), config(take_config(&job)), number(order) {}

std::string JobEntry::id() const { return parse_job_name(job.name()); }

void JobEntry::hold(v1::HoldCode code, const std::string& reason) {
  base::move_to(job, v1::JOB_STATE_HELD);
  job.set_hold_code(code);
  job.set_hold_reason(reason);
}

v1::Job JobEntry::view() const {
  v1::Job shown = told();
  if (shown.state() != job.state()) shown.set_pending_state(job.state());
  return shown;
}

v1::Job JobEntry::summary() const {
  v1::Job shown = summary_of(told());
  if (shown.state() != job.state()) shown.set_pending_state(job.state());
  return shown;
}

void JobEntry::set_checkpoint_step(std::int64_t step) {
  job.set_checkpoint_step(step);
  if (told_) told_->set_checkpoint_step(step);
}

void JobEntry::hold_back() {
  if (!told_) told_ = std::make_unique<v1::Job>(job);
}

void JobEntry::add_event(v1::JobEvent event, Ledger::Ticket ticket) {
  job.set_revision(job.revision() + 1);
  event.set_revision(job.revision());
  if (event.has_job()) event.mutable_job()->set_revision(job.revision());
  if (ticket == 0 && pending_.empty()) return tell(std::move(event));
  pending_.push_back({std::max(ticket, newest_ticket()), std::move(event)});
  // A disk that stays full must not fill the memory: those who watch then begin anew.
  if (pending_.size() > kHistory) pending_.pop_front();
}

std::string JobEntry::log_lines(Ledger::Ticket durable) const {
  std::string lines;
  v1::JobState before = told().state();
  for (const Pending& item : pending_) {
    if (item.ticket > durable) break;
    lines += job_log_lines(item.event, before);
    if (item.event.has_job()) before = item.event.job().state();
  }
  return lines;
}

std::vector<std::pair<Ledger::Ticket, std::string>> JobEntry::event_lines(
    Ledger::Ticket durable) const {
  std::vector<std::pair<Ledger::Ticket, std::string>> all;
  v1::JobState before = told().state();
  for (const Pending& item : pending_) {
    if (item.ticket > durable) break;
    const v1::Job& job_then = item.event.has_job() ? item.event.job() : job;
    if (auto lines = control::event_lines(item.event, before, job_then); !lines.empty())
      all.emplace_back(item.ticket, std::move(lines));
    if (item.event.has_job()) before = item.event.job().state();
  }
  return all;
}

bool JobEntry::publish(Ledger::Ticket durable) {
  bool any = false;
  for (; !pending_.empty() && pending_.front().ticket <= durable; any = true) {
    apply_event(pending_.front().event, told_.get());
    tell(std::move(pending_.front().event));
    pending_.pop_front();
  }
  if (pending_.empty()) told_.reset();
  return any;
}

void JobEntry::tell(v1::JobEvent event) {
  if (!history_.empty() && history_.back().revision() + 1 != event.revision()) history_.clear();
  history_.push_back(std::move(event));
  if (history_.size() > kHistory) history_.pop_front();
}

std::vector<v1::JobEvent> JobEntry::events_after(std::int64_t revision) const {
  constexpr std::int64_t kMostAtOnce = 256;
  const std::int64_t newest = told().revision();
  if (revision > newest)
    throw OutOfRange(
        fmt::format("job \"{}\" is at revision {}, {} was asked for", id(), newest, revision),
        "REVISION_IN_FUTURE");
  if (revision == newest) return {};
  if (history_.empty() || history_.front().revision() > revision + 1)
    throw OutOfRange(fmt::format("job \"{}\": events after revision {} are no longer kept; watch "
                                 "again from the present state",
                                 id(), revision),
                     "REVISION_COMPACTED");
  const auto first = history_.begin() + (revision + 1 - history_.front().revision());
  const auto count = std::min<std::int64_t>(kMostAtOnce, history_.end() - first);
  return {first, first + count};
}

void JobEntry::summarize() {
  job = summary_of(job);
  job.set_summary(true);
  config.reset();
  history_.clear();
}

}  // namespace meshloom::control
