// SPDX-License-Identifier: Apache-2.0
#include "daemon/cli/jobs/progress.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "daemon/base/utf8.h"
#include "daemon/cli/output/output.h"
#include "daemon/cli/output/terminal.h"

namespace meshloom::cli {
namespace {

constexpr std::chrono::seconds kBetweenLines{1};

}  // namespace

std::string Progress::erase() const {
  if (bar_.empty()) return "";
  const auto columns = static_cast<std::size_t>(std::max(columns_, 1));
  const std::size_t wrapped = (bar_.size() - 1) / columns;
  return wrapped == 0 ? kClearLine : fmt::format("\r\033[{}A\033[J", wrapped);
}

std::string Progress::clear() {
  std::string text = erase();
  bar_.clear();
  return text;
}

std::string Progress::above(const std::string& line) {
  const std::string before = erase();
  bar_ = bar_.substr(0, static_cast<std::size_t>(std::max(columns_ - 1, 0)));
  return before + line + "\n" + bar_;
}

void Progress::pass(Clock::time_point now, bool trained) {
  if (trained) trained_ += now - last_event_;
  last_event_ = now;
}

std::string Progress::show(const v1::JobEvent& event, Clock::time_point now) {
  if (event.has_job()) return show_state(event.job(), now);
  if (event.has_tokenizing()) return show_tokenizing(event.tokenizing(), now);
  if (event.has_step()) return show_step(event.step(), now);
  if (event.has_validation() || event.has_sample()) pass(now, false);
  if (event.has_validation()) {
    const v1::ValidationMetrics& metrics = event.validation();
    std::string text =
        fmt::format("step {}: validation loss {:.4f}{}, perplexity {:.2f}", metrics.step(),
                    metrics.loss(), bits_text(metrics), std::exp(metrics.loss()));
    for (const v1::SetLoss& set : metrics.sets())
      text += fmt::format("; {} {:.4f}{}, perplexity {:.2f}", set.set(), set.loss(), bits_text(set),
                          std::exp(set.loss()));
    return above(text);
  }
  if (event.has_sample())
    return above(fmt::format("step {}: sample{}: {}", event.sample().step(),
                             end_text(event.sample()),
                             base::printable_text(event.sample().text())));
  return event.note().empty() ? "" : above("note: " + event.note());
}

std::string Progress::show_state(const v1::Job& job, Clock::time_point now) {
  steps_ = job.steps();
  if (first_step_ < 0 && job.state() == v1::JOB_STATE_RUNNING) {
    first_step_ = job.step();
    last_event_ = now;
  }
  if (job.state() == state_) return "";
  state_ = job.state();
  const std::string why = job.hold_reason().empty() ? "" : fmt::format(" ({})", job.hold_reason());
  return above(fmt::format("{}: {}{}", short_name(job.name()), state_text(state_, colour_), why));
}

std::string Progress::show_tokenizing(const v1::TokenizeProgress& done, Clock::time_point now) {
  const std::int64_t percent =
      done.total_bytes() > 0 ? done.bytes() * 100 / done.total_bytes() : 100;
  const auto text = fmt::format("tokenizing {}: {} of {} ({} %)", done.field(),
                                bytes_text(done.bytes()), bytes_text(done.total_bytes()), percent);
  const bool whole = done.bytes() == done.total_bytes();
  // The end of a text may come as its last piece and once more as its end.
  if (whole && text == tokenized_) return "";
  tokenized_ = whole ? text : "";
  if (terminal_ && !whole) {
    const std::string before = bar_.empty() ? kClearLine : erase();
    bar_ = text.substr(0, static_cast<std::size_t>(std::max(columns_ - 1, 1)));
    return before + bar_;
  }
  if (!whole && last_line_ != Clock::time_point{} && now - last_line_ < kBetweenLines) return "";
  // The first step is shown at once.
  last_line_ = whole ? Clock::time_point{} : now;
  return clear() + text + "\n";
}

double Progress::seconds_left(std::int64_t step) const {
  if (step <= first_step_) return 0;
  const double passed = std::chrono::duration<double>(trained_).count();
  return passed / static_cast<double>(step - first_step_) * static_cast<double>(steps_ - step);
}

std::string Progress::show_step(const v1::StepMetrics& step, Clock::time_point now) {
  if (first_step_ < 0) {
    first_step_ = step.step();
    last_event_ = now;
  }
  pass(now, true);
  if (terminal_) {
    const std::string before = bar_.empty() ? kClearLine : erase();
    bar_ = bar(step);
    return before + bar_;
  }
  const bool due = step.step() == steps_ || last_line_ == Clock::time_point{} ||
                   now - last_line_ >= kBetweenLines;
  if (!due) return "";
  last_line_ = now;
  return fmt::format(
      "step {}/{}  loss {:.4f}{}  grad_norm {:.3f}  lr {:.2e}  {:.0f} tokens/s  left {}\n",
      step.step(), steps_, step.loss(), bits_text(step), step.grad_norm(), step.lr(),
      step.tokens_per_second(), duration_text(seconds_left(step.step())));
}

std::string Progress::bar(const v1::StepMetrics& step) const {
  const std::string text = fmt::format(
      " {}/{}  loss {:.4f}{}  {:.0f} tokens/s  left {}", step.step(), steps_, step.loss(),
      bits_text(step), step.tokens_per_second(), duration_text(seconds_left(step.step())));
  const int width = std::clamp(columns_ - static_cast<int>(text.size()) - 3, 0, 40);
  const auto done = static_cast<std::size_t>(
      steps_ > 0 ? std::min<std::int64_t>(width, step.step() * width / steps_) : 0);
  if (width < 4) return text.substr(0, static_cast<std::size_t>(std::max(columns_ - 1, 1)));
  return "[" + std::string(done, '#') + std::string(static_cast<std::size_t>(width) - done, '.') +
         "]" + text;
}

}  // namespace meshloom::cli
