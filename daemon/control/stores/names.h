// SPDX-License-Identifier: Apache-2.0
// Names that clients give: checked before they become part of a path.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace meshloom::control {

/// "jobs/x" or "x" -> "x". Throws InvalidArgument (NAME_INVALID) unless x is
/// [a-z0-9][a-z0-9_-]{0,62}.
std::string parse_job_name(const std::string& name);
std::string job_resource(const std::string& id);  ///< "x" -> "jobs/x"

/// The same with "models/" and "uploads/".
std::string parse_model_name(const std::string& name);
std::string model_resource(const std::string& id);
std::string parse_upload_name(const std::string& name);
std::string upload_resource(const std::string& id);

/// "plans/SHA256" or its digits, or at least 8 of them: in lower case, without "plans/".
std::string parse_plan_name(const std::string& name);
std::string plan_resource(const std::string& id);

/// A plain name of a file: [A-Za-z0-9_][A-Za-z0-9._-]{0,127}.
bool is_file_name(const std::string& name);

/// As parse_job_name, with "runs/".
std::string parse_run_name(const std::string& name);
std::string run_resource(const std::string& id);

struct StateName {
  std::string run;
  std::string state;
};
/// "runs/RUN/states/NAME"; the last is named as the folder of a checkpoint.
StateName parse_state_name(const std::string& name);
std::string state_resource(const std::string& run, const std::string& state);

struct WeightsName {
  std::string run;
  std::string weights;
};
/// "runs/RUN/weights/NAME"; the last is named as the folder of a checkpoint.
WeightsName parse_weights_name(const std::string& name);
std::string weights_resource(const std::string& run, const std::string& weights);

struct CheckpointName {
  std::string job;
  std::string folder;  ///< "step-100", or the folder of an export
};
/// "checkpoints/JOB/FOLDER"; the folder is [A-Za-z0-9][A-Za-z0-9._-]{0,62}, so it has no separators
/// and no "..".
CheckpointName parse_checkpoint_name(const std::string& name);
std::string checkpoint_resource(const std::string& job, const std::string& folder);
/// Whether run.checkpoint.resume_from names a job's checkpoint, and not a folder of the data dir.
bool names_a_job(const std::string& resume_from);
bool is_folder_name(const std::string& name);

/// Opaque tokens of list calls: the position to go on from. Throws InvalidArgument
/// (PAGE_TOKEN_INVALID) for what was not made here, or for another list (`scope`: kind and filter).
std::string make_page_token(const std::string& scope, std::int64_t position);
std::int64_t parse_page_token(const std::string& scope, const std::string& token);
/// The same of lists whose places are texts; empty for the first page.
std::string make_place_token(const std::string& scope, const std::string& place);
std::string parse_place_token(const std::string& scope, const std::string& token);
/// The size to serve: 50 if none is asked for, at most `most`. Throws InvalidArgument
/// (PAGE_SIZE_INVALID) for one that is not above 0.
int page_size_or_default(std::optional<int> asked, int most = 1000);
/// Of a request for a page of a list.
template <typename Request>
int page_size_of(const Request& request, int most = 1000) {
  return page_size_or_default(
      request.has_page_size() ? std::optional<int>(request.page_size()) : std::nullopt, most);
}

}  // namespace meshloom::control
