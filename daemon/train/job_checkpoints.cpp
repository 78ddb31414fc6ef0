// SPDX-License-Identifier: Apache-2.0
#include "daemon/train/job_checkpoints.h"

#include <utility>

#include "daemon/train/data/data_identity.h"
#include "daemon/train/job_beginning.h"
#include "daemon/train/resume_check.h"
#include "daemon/train/validation_progress.h"

namespace meshloom::train {

void JobCheckpoints::begin(ModelRun& model, std::vector<std::string>& notes) {
  JobBeginning beginning(resources_, config_, options_, model, data_, notes);
  const JobBeginning::Begun begun = beginning.begin();
  progress_ = begun.progress;
  saved_step_ = begun.saved_step;
  saved_validation_ = validation_progress_to_json(progress_.validation);
}

void JobCheckpoints::save(ModelRun& model, const JobProgress& progress, int keep_latest_k,
                          const std::vector<CarriedFile>& carried) {
  CheckpointLocation location = checkpoint_location(resources_, options_, keep_latest_k);
  for (const v1::BestCheckpoint& best : progress.validation.best())
    location.keep_steps.insert(best.step());
  std::string validation = validation_progress_to_json(progress.validation);
  if (saved_step_ == model.step()) {
    if (validation != saved_validation_)
      rewrite_progress(*resources_.world, location, saved_step_, validation);
  } else {
    Manifest manifest;
    manifest.validation_progress = validation;
    manifest.data_position = progress.data_position;
    manifest.tokens = progress.tokens;
    manifest.data_identity = to_json_text(data_);
    if (progress.edited_config) manifest.run_config = to_json_text(*progress.edited_config);
    model.save_state(location, std::move(manifest), carried);
  }
  saved_step_ = model.step();
  saved_validation_ = std::move(validation);
}

}  // namespace meshloom::train
