// SPDX-License-Identifier: Apache-2.0
#include "daemon/control/jobs/sample_sources.h"

#include "daemon/base/field_error.h"
#include "daemon/control/stores/checkpoint_files.h"
#include "daemon/control/stores/names.h"
#include "daemon/train/files/hf_folder.h"

namespace meshloom::control {

SampleSources::Place SampleSources::find(const v1::GenerateRequest& request, bool live) const {
  Place place;
  if (request.has_job()) {
    const std::string id = parse_job_name(request.job());
    const v1::Job job = store_.get(id);
    if (live && job.state() == v1::JOB_STATE_RUNNING && job.vocab_size() > 0) {
      place.live_run = id;
      place.limits = tokenization_.prompt_limits(job.resolved());
      return place;
    }
    place.folder = newest_model(state_, job);
    if (place.folder.empty())
      throw FailedPrecondition(
          fmt::format("job \"{}\" has neither a checkpoint nor an export yet", id), "NO_CHECKPOINT",
          {{"job", id}});
  } else if (request.has_checkpoint()) {
    const CheckpointName name = parse_checkpoint_name(request.checkpoint());
    place.folder = checkpoint_folder(state_, store_.get(name.job), name.folder);
  } else if (request.has_hf_folder()) {
    place.folder = folders_.find_hf_folder(request.hf_folder());
  } else if (request.has_model()) {
    v1::RunConfig config;
    config.mutable_model()->set_name(request.model());
    place.folder = folders_.model_folder(config);
    if (!train::has_hf_weights(place.folder))
      throw FailedPrecondition(
          fmt::format("model \"{}\" has no weights to draw from", request.model()),
          "MODEL_HAS_NO_WEIGHTS", {{"model", request.model()}});
  } else {
    base::refuse_field("source", "give a job, a checkpoint, an hf_folder or a model");
  }
  return place;
}

}  // namespace meshloom::control
