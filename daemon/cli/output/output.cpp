// SPDX-License-Identifier: Apache-2.0
#include "daemon/cli/output/output.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <sstream>

#include "daemon/base/enum_names.h"
#include "daemon/base/goodput.h"
#include "daemon/base/message_printer.h"
#include "daemon/cli/output/terminal.h"

namespace meshloom::cli {
namespace {

std::string dump(const google::protobuf::Message& message, int indent) {
  return base::to_json(message).dump(indent, ' ', false,
                                     nlohmann::ordered_json::error_handler_t::replace);
}

/// How parameters are held, and what that costs on the wire.
void print_plan(const v1::Job& job) {
  if (!job.plan().empty()) fmt::print("parameters\n");
  std::istringstream lines(job.plan());
  for (std::string text; std::getline(lines, text);) fmt::print("  {}\n", text);
  const auto& collectives = job.last_step().collectives();
  if (collectives.empty()) return;
  fmt::print("sent by rank 0 in the last step\n");
  for (const v1::CollectiveMetrics& item : collectives)
    fmt::print("  {:<8} {:<15} {:>6} calls {:>10}\n", item.group(), item.collective(), item.calls(),
               bytes_text(item.bytes_sent()));
}

/// Characters that are seen: bytes that continue one and colours are not.
std::size_t visible_width(const std::string& text) {
  std::size_t width = 0;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '\033') {
      i = std::min(text.find('m', i), text.size());
      continue;
    }
    if ((static_cast<unsigned char>(text[i]) & 0xC0) != 0x80) ++width;
  }
  return width;
}

/// "5.5837 at step 0, 8.0556 bits/byte; ", what stands before the last validation, on the same
/// data; empty if that was the first too.
template <typename Metrics>
std::string before_last(const v1::Job& job, const Metrics& first) {
  const std::int64_t step = job.first_validation().step();
  if (step == job.last_validation().step()) return {};
  return fmt::format("{:.4f} at step {}{}{} ", first.loss(), step, bits_text(first),
                     first.has_bits_per_byte() ? ";" : ",");
}

/// "2.3000 at step 0, " of a validation set; empty if the first validation is not told.
std::string first_text(const v1::Job& job, const std::string& set) {
  for (const v1::SetLoss& of : job.first_validation().sets())
    if (of.set() == set) return before_last(job, of);
  return {};
}

/// What a job that does not run waits for, beside what holds it.
std::string waits_text(const v1::Job& job) {
  if (job.state() == v1::JOB_STATE_PAUSED && job.pause_code() == v1::PAUSE_CODE_DRAIN)
    return "the daemon is drained: for `meshloom undrain` or `meshloom job resume`";
  return job.wait().reason();
}

/// Returns the colour as terminals number them; 0: none.
int colour_of(v1::JobState state) {
  constexpr int kRed = 31, kGreen = 32, kYellow = 33, kCyan = 36;
  switch (state) {
    case v1::JOB_STATE_SUCCEEDED: return kGreen;
    case v1::JOB_STATE_FAILED: return kRed;
    case v1::JOB_STATE_RUNNING:
    case v1::JOB_STATE_PREPARING: return kCyan;
    case v1::JOB_STATE_HELD:
    case v1::JOB_STATE_PAUSED:
    case v1::JOB_STATE_PAUSING:
    case v1::JOB_STATE_RECOVERING: return kYellow;
    default: return 0;
  }
}

}  // namespace

void print_json(const google::protobuf::Message& message) { fmt::print("{}\n", dump(message, 2)); }

void print_json_line(const google::protobuf::Message& message) {
  fmt::print("{}\n", dump(message, -1));
  std::fflush(stdout);
}

void print_table(const std::vector<std::vector<std::string>>& rows) {
  std::vector<std::size_t> widths(rows.at(0).size(), 0);
  for (const auto& row : rows)
    for (std::size_t i = 0; i < row.size(); ++i)
      widths[i] = std::max(widths[i], visible_width(row[i]));
  for (const auto& row : rows) {
    std::string text;
    for (std::size_t i = 0; i < row.size(); ++i)
      text += row[i] + std::string(widths[i] - visible_width(row[i]) + 2, ' ');
    text.erase(text.find_last_not_of(' ') + 1);
    fmt::print("{}\n", text);
  }
}

void print_line(const char* key, const std::string& value) {
  if (!value.empty()) fmt::print("{:<12}{}\n", key, value);
}

std::string short_name(const std::string& resource) {
  const auto slash = resource.find('/');
  return slash == std::string::npos ? resource : resource.substr(slash + 1);
}

std::string state_name(v1::JobState state) {
  const auto* value = v1::JobState_descriptor()->FindValueByNumber(state);
  return value ? base::enum_spelling(*value) : std::to_string(static_cast<int>(state));
}

std::string state_text(v1::JobState state, bool colour) {
  const int number = colour ? colour_of(state) : 0;
  const std::string name = state_name(state);
  return number == 0 ? name : fmt::format("\033[{}m{}\033[0m", number, name);
}

std::string bytes_text(std::int64_t bytes) {
  constexpr const char* kUnits[] = {"B", "KiB", "MiB", "GiB", "TiB"};
  auto value = static_cast<double>(bytes);
  std::size_t unit = 0;
  for (; value >= 1024 && unit + 1 < std::size(kUnits); ++unit) value /= 1024;
  return unit == 0 ? fmt::format("{} B", bytes) : fmt::format("{:.1f} {}", value, kUnits[unit]);
}

std::string grouped_digits(std::int64_t count) {
  std::string digits = std::to_string(count);
  for (auto at = static_cast<std::int64_t>(digits.size()) - 3; at > 0; at -= 3)
    digits.insert(static_cast<std::size_t>(at), ",");
  return digits;
}

std::string plural(std::int64_t count, const char* thing) {
  return fmt::format("{} {}{}", grouped_digits(count), thing, count == 1 ? "" : "s");
}

std::string seconds_text(double seconds) {
  if (seconds >= 1.0) return fmt::format("{:.2f} s", seconds);
  if (seconds >= 1e-3) return fmt::format("{:.1f} ms", 1e3 * seconds);
  return fmt::format("{:.1f} us", 1e6 * seconds);
}

std::string duration_text(double seconds) {
  const auto whole = static_cast<std::int64_t>(seconds + 0.5);
  if (whole < 60) return fmt::format("{}s", whole);
  if (whole < 3600) return fmt::format("{}m{:02}s", whole / 60, whole % 60);
  return fmt::format("{}h{:02}m", whole / 3600, whole / 60 % 60);
}

std::string end_text(const v1::DrawnSample& sample) {
  return sample.finish_reason() == "context" ? ", the context is full" : "";
}

void print_job(const v1::Job& job, const JobStyle& style) {
  print_line("job", short_name(job.name()));
  print_line("state", state_text(job.state(), style.colour));
  if (job.pending_state() != v1::JOB_STATE_UNSPECIFIED)
    print_line("", fmt::format("{} has taken effect and is not yet durable",
                               state_name(job.pending_state())));
  print_line("held", job.hold_reason());
  print_line("waits", waits_text(job));
  print_line("step", fmt::format("{} of {}", job.step(), job.steps()));
  if (job.has_last_step())
    print_line("last step",
               fmt::format("loss {:.4f}{}, {:.0f} tokens/s", job.last_step().loss(),
                           bits_text(job.last_step()), job.last_step().tokens_per_second()));
  if (job.has_first_validation())
    print_line("validation",
               fmt::format("loss {}{:.4f} at step {}{}", before_last(job, job.first_validation()),
                           job.last_validation().loss(), job.last_validation().step(),
                           bits_text(job.last_validation())));
  for (const v1::SetLoss& last : job.last_validation().sets())
    print_line("", fmt::format("{}: loss {}{:.4f} at step {}{}, perplexity {:.2f}", last.set(),
                               first_text(job, last.set()), last.loss(),
                               job.last_validation().step(), bits_text(last), last.perplexity()));
  // While it trains the last step has what is newer.
  const v1::Goodput& of_step = job.last_step().goodput();
  print_line("goodput",
             base::goodput_text(of_step.until() > job.goodput().until() ? of_step : job.goodput()));
  print_line("stopped", job.stopped_early());
  if (job.failed_saves() > 0)
    print_line("not saved", fmt::format("{} of its checkpoints; the last: {}", job.failed_saves(),
                                        job.save_failure()));
  print_line("error", job.error().message());
  for (const auto& note : job.notes()) print_line("note", note);
  if (job.summary()) print_line("kept", "a summary; resolved.yaml in the folder has the config");
  print_line("created", job.create_time());
  print_line("finished", job.finish_time());
  print_line("folder", job.output_dir());
  print_line("model", job.hf_folder());
  if (style.verbose) print_plan(job);
  const auto is_last = [&](const v1::DrawnSample& sample) { return sample.text() == job.sample(); };
  const auto last = std::find_if(job.samples().begin(), job.samples().end(), is_last);
  if (!job.sample().empty()) {
    fmt::print("sample{}\n", last == job.samples().end() ? "" : end_text(*last));
    print_drawn_text(job.sample() + '\n');
  }
  for (const v1::DrawnSample& sample : job.samples()) {
    if (is_last(sample)) continue;
    fmt::print("sample of step {}{}\n", sample.step(), end_text(sample));
    print_drawn_text(sample.text() + '\n');
  }
}

}  // namespace meshloom::cli
