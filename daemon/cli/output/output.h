// SPDX-License-Identifier: Apache-2.0
// The client shows what it got as JSON, tables and lines.
#pragma once

#include <fmt/format.h>
#include <google/protobuf/message.h>

#include <string>
#include <vector>

#include "v1/job.pb.h"

namespace meshloom::cli {

/// Prints the whole message as JSON on standard output: one value.
void print_json(const google::protobuf::Message& message);
/// Prints the whole message as JSON on one line, for streams.
void print_json_line(const google::protobuf::Message& message);

/// Prints columns as wide as their widest cell, colours not counted; the first row is the heading.
void print_table(const std::vector<std::vector<std::string>>& rows);

/// Prints "key         value"; nothing where the value is empty.
void print_line(const char* key, const std::string& value);

/// Returns the name of an owner; "(admins)" of what is the admins'.
inline std::string owner_text(const std::string& owner) {
  return owner.empty() ? "(admins)" : owner;
}
std::string short_name(const std::string& resource);  ///< "jobs/x", "runs/x" -> "x"
std::string state_name(v1::JobState state);           ///< "running"
/// Returns state_name(state), in its colour if `colour` says so.
std::string state_text(v1::JobState state, bool colour);
std::string grouped_digits(std::int64_t count);  ///< "1,234,567"
/// Returns "1 rank", "2,048 tokens": a thing whose plural has an s.
std::string plural(std::int64_t count, const char* thing);
std::string bytes_text(std::int64_t bytes);  ///< "1.5 GiB"
std::string seconds_text(double seconds);    ///< "1.25 s", "3.0 ms", "8.1 us"
std::string duration_text(double seconds);   ///< "2m05s"

/// Returns ", 1.2345 bits/byte" of a step, a validation, a set or an evaluation; empty where it is
/// not known.
template <typename Metrics>
std::string bits_text(const Metrics& metrics) {
  if (!metrics.has_bits_per_byte()) return {};
  return fmt::format(", {:.4f} bits/byte", metrics.bits_per_byte());
}

/// Returns ", the context is full", to stand behind the name of a sample that ended so; else
/// nothing.
std::string end_text(const v1::DrawnSample& sample);

struct JobStyle {
  bool colour = false;
  bool verbose = false;  ///< how the ranks hold each parameter, too
};
/// Prints a job in full, but for its facts (jobs/job_facts.h).
void print_job(const v1::Job& job, const JobStyle& style);

}  // namespace meshloom::cli
