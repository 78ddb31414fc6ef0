// SPDX-License-Identifier: Apache-2.0
// How the client shows what it got.
#pragma once

#include <fmt/format.h>
#include <google/protobuf/message.h>

#include <string>
#include <vector>

#include "v1/job.pb.h"

namespace meshloom::cli {

/// JSON on standard output: the whole message, one value.
void print_json(const google::protobuf::Message& message);
/// The same on one line, for streams.
void print_json_line(const google::protobuf::Message& message);

/// Columns as wide as their widest cell, colours not counted; the first row is the heading.
void print_table(const std::vector<std::vector<std::string>>& rows);

/// "key         value"; nothing where the value is empty.
void print_line(const char* key, const std::string& value);

std::string short_name(const std::string& resource);  ///< "jobs/x", "runs/x" -> "x"
std::string state_name(v1::JobState state);           ///< "running"
/// The same in its colour if `colour` says so.
std::string state_text(v1::JobState state, bool colour);
std::string grouped_digits(std::int64_t count);  ///< "1,234,567"
/// "1 rank", "2,048 tokens": a thing whose plural has an s.
std::string plural(std::int64_t count, const char* thing);
std::string bytes_text(std::int64_t bytes);  ///< "1.5 GiB"
std::string seconds_text(double seconds);    ///< "1.25 s", "3.0 ms", "8.1 us"
std::string duration_text(double seconds);   ///< "2m05s"

/// ", 1.2345 bits/byte" of a step, a validation, a set or an evaluation; empty where it is not
/// known.
template <typename Metrics>
std::string bits_text(const Metrics& metrics) {
  if (!metrics.has_bits_per_byte()) return {};
  return fmt::format(", {:.4f} bits/byte", metrics.bits_per_byte());
}

/// ", the context is full" behind the name of a sample that ended so; else nothing.
std::string end_text(const v1::DrawnSample& sample);

struct JobStyle {
  bool colour = false;
  bool verbose = false;  ///< how the ranks hold each parameter, too
};
/// A job in full, but for its facts (job_facts.h).
void print_job(const v1::Job& job, const JobStyle& style);

}  // namespace meshloom::cli
