// SPDX-License-Identifier: Apache-2.0
// Whether what a job will keep fits the disk of the state dir.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "daemon/nn/models/model_config.h"
#include "v1/job_service.pb.h"

namespace meshloom::control {

/// The reason of a refusal, and of a job that is held.
inline constexpr const char* kNoSpace = "NO_SPACE";
/// That of what a full disk refused (base::throw_io_error).
inline constexpr const char* kDiskFull = "DISK_FULL";

/// What a resolved job keeps on the disk at once: free_bytes is left open. Checkpoints hold the
/// float32 weights and the optimizer's moments of all parameters; those of frozen ones count, too.
v1::DiskEstimate disk_need(const v1::RunConfig& resolved, std::int64_t step_limit,
                           std::int64_t parameters);

/// Compares the need of a job with the room that its checkpoints find in `folder`; a warning goes
/// to `warnings` where not all of it fits. Throws ResourceExhausted (NO_SPACE) where not even one
/// checkpoint does, unless `overcommit`. Nothing where it is not known what is free.
std::optional<v1::DiskEstimate> check_disk(const v1::JobSpec& spec, const v1::RunConfig& resolved,
                                           const nn::ModelConfig& model,
                                           const std::filesystem::path& folder,
                                           std::vector<std::string>* warnings);
/// The same with a need, and the bytes that are free.
void check_room(const v1::DiskEstimate& disk, bool overcommit, std::vector<std::string>* warnings);

}  // namespace meshloom::control
