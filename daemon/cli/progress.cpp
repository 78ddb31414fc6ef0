// SPDX-License-Identifier: Apache-2.0
#include "daemon/cli/progress.h"

#include <fmt/format.h>

#include <algorithm>

#include "daemon/cli/output.h"

namespace meshloom::cli {
namespace {

constexpr const char* kClearLine = "\r\033[K";
constexpr std::chrono::seconds kBetweenLines{1};

}  // namespace

std::string Progress::clear() {
  if (bar_.empty()) return "";
  bar_.clear();
  return kClearLine;
}

std::string Progress::above(const std::string& line) {
  const std::string bar = bar_;
  return (bar.empty() ? "" : kClearLine) + line + "\n" + bar;
}

std::string Progress::show(const v1::JobEvent& event, Clock::time_point now) {
  if (event.has_job()) return show_state(event.job(), now);
  if (event.has_step()) return show_step(event.step(), now);
  if (event.has_validation())
    return above(fmt::format("step {}: validation loss {:.4f}", event.validation().step(),
                             event.validation().loss()));
  return event.note().empty() ? "" : above("note: " + event.note());
}

std::string Progress::show_state(const v1::Job& job, Clock::time_point now) {
  steps_ = job.steps();
  if (first_step_ < 0 && job.state() == v1::JOB_STATE_RUNNING) {
    first_step_ = job.step();
    first_time_ = now;
  }
  if (job.state() == state_) return "";
  state_ = job.state();
  const std::string why = job.hold_reason().empty() ? "" : fmt::format(" ({})", job.hold_reason());
  return above(fmt::format("{}: {}{}", short_name(job.name()), state_name(state_), why));
}

double Progress::seconds_left(std::int64_t step, Clock::time_point now) const {
  if (step <= first_step_) return 0;
  const double passed = std::chrono::duration<double>(now - first_time_).count();
  return passed / static_cast<double>(step - first_step_) * static_cast<double>(steps_ - step);
}

std::string Progress::show_step(const v1::StepMetrics& step, Clock::time_point now) {
  if (first_step_ < 0) {
    first_step_ = step.step();
    first_time_ = now;
  }
  if (terminal_) {
    bar_ = bar(step, now);
    return kClearLine + bar_;
  }
  const bool due = step.step() == steps_ || last_line_ == Clock::time_point{} ||
                   now - last_line_ >= kBetweenLines;
  if (!due) return "";
  last_line_ = now;
  return fmt::format(
      "step {}/{}  loss {:.4f}  grad_norm {:.3f}  lr {:.2e}  {:.0f} tokens/s  left {}\n",
      step.step(), steps_, step.loss(), step.grad_norm(), step.lr(), step.tokens_per_second(),
      duration_text(seconds_left(step.step(), now)));
}

std::string Progress::bar(const v1::StepMetrics& step, Clock::time_point now) const {
  const std::string text =
      fmt::format(" {}/{}  loss {:.4f}  {:.0f} tokens/s  left {}", step.step(), steps_, step.loss(),
                  step.tokens_per_second(), duration_text(seconds_left(step.step(), now)));
  const int width = std::clamp(columns_ - static_cast<int>(text.size()) - 3, 0, 40);
  const auto done = static_cast<std::size_t>(
      steps_ > 0 ? std::min<std::int64_t>(width, step.step() * width / steps_) : 0);
  if (width < 4) return text.substr(0, static_cast<std::size_t>(std::max(columns_ - 1, 1)));
  return "[" + std::string(done, '#') + std::string(static_cast<std::size_t>(width) - done, '.') +
         "]" + text;
}

}  // namespace meshloom::cli
