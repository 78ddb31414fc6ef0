// SPDX-License-Identifier: Apache-2.0
#include "daemon/cli/jobs/job_changes.h"

#include <fmt/format.h>

#include <map>

#include "daemon/cli/key_value.h"
#include "daemon/cli/output/output.h"

namespace meshloom::cli {

void add_label(const std::string& text, google::protobuf::Map<std::string, std::string>* labels) {
  const auto [key, value] = split_key_value(text);
  (*labels)[key] = value;
}

std::string labels_text(const google::protobuf::Map<std::string, std::string>& labels) {
  std::string text;
  for (const auto& [key, value] : std::map<std::string, std::string>(labels.begin(), labels.end()))
    text += fmt::format("{}{}={}", text.empty() ? "" : ",", key, value);
  return text;
}

v1::Job get_job(Client& client, const std::string& name) {
  v1::GetJobRequest request;
  request.set_name(name);
  return client.call(client.jobs(), &v1::JobService::Stub::GetJob, request).job();
}

ExitCode print_state(bool json, const v1::Job& job) {
  if (json)
    print_json(job);
  else
    fmt::print("{}: {}\n", short_name(job.name()), state_name(job.state()));
  return kOk;
}

ExitCode resume_paused(Client& client, bool json, const std::string& name) {
  v1::ResumeJobRequest request;
  request.set_request_id(make_request_id());
  request.set_name(name);
  return print_state(json,
                     client.call(client.jobs(), &v1::JobService::Stub::ResumeJob, request).job());
}

}  // namespace meshloom::cli
