// SPDX-License-Identifier: Apache-2.0
// What of a job may change while it is under way, and which settings hold for which of its steps.
#pragma once

#include <cstdint>
#include <set>
#include <string>

#include "v1/job.pb.h"

namespace meshloom::control {

using JobEdits = google::protobuf::RepeatedPtrField<v1::JobEdit>;

/// Of a resolved config, or of one as a client gave it.
v1::JobSettings settings_of(const v1::RunConfig& config);
void apply_settings(const v1::JobSettings& settings, v1::RunConfig* config);

/// What a resolved config and its edits say of step `step` (from 1).
v1::JobSettings settings_for(const v1::RunConfig& resolved, const JobEdits& edits,
                             std::int64_t step);

/// Adds an edit whose `before` is not filled in. Those for later steps, of an attempt that went
/// further than the checkpoint that the job went on from, are contained in it and go.
void add_edit(const v1::RunConfig& resolved, v1::JobEdit edit, JobEdits* edits);

/// The step with which a job ends: that of its settings, or its limit.
std::int64_t end_step(const v1::JobSettings& settings, std::int64_t step_limit);

/// The values of `spec` that `fields` names, over those of `job`; an early_stopping without values
/// ends it. Throws InvalidArgument: without fields, for one that no job has, and (FIELD_FIXED)
/// naming all that cannot change; and for a value that no field names.
v1::JobSpec edited_spec(v1::JobSpec job, const v1::JobSpec& spec,
                        const std::set<std::string>& fields);

/// Throws FailedPrecondition (STEP_PASSED) naming the first of the changed fields whose steps are
/// past: step `begun` has begun, and all before it.
void check_ahead(const v1::JobSpec& before, const v1::JobSpec& after, std::int64_t begun,
                 double ran_seconds);

}  // namespace meshloom::control
