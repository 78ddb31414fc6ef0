// SPDX-License-Identifier: Apache-2.0
#include "daemon/train/job_course.h"

#include "daemon/train/run_mesh.h"

namespace meshloom::train {

JobCourse::JobCourse(const v1::RunConfig& config, Begin begin)
    : config_(config),
      schedule_(make_lr_schedule(config.lr_scheduler(), config.training().steps())),
      flops_per_token_(begin.flops_per_token),
      peak_flops_(begin.peak_flops),
      step_(begin.step),
      next_position_(begin.progress.data_position),
      position_(begin.progress.data_position),
      tokens_(begin.progress.tokens) {}

JobCourse::Step JobCourse::next() {
  Step step;
  step.batch.first_sample = next_position_;
  step.update.set_lr(config_.optimizer().lr() * schedule_.factor(step_));
  next_position_ += config_.training().global_batch_size();
  ++step_;
  return step;
}

v1::StepMetrics JobCourse::done(std::int64_t tokens, const StepOutput& output) {
  const v1::TrainingConfig& training = config_.training();
  position_ += training.global_batch_size();
  tokens_ += tokens;
  v1::StepMetrics metrics;
  metrics.set_step(output.values.step());
  metrics.set_loss(output.values.loss());
  metrics.set_grad_norm(output.values.grad_norm());
  metrics.set_lr(output.values.lr());
  metrics.set_tokens(tokens_);
  metrics.set_tokens_per_second(static_cast<double>(tokens) / output.step_seconds);
  if (peak_flops_ > 0.0) {
    const double peak = peak_flops_ * mesh_layout(config_.mesh()).size();
    const auto positions = static_cast<double>(training.global_batch_size() * training.seq_len());
    metrics.set_mfu(positions * flops_per_token_ / (output.step_seconds * peak));
  }
  for (const v1::CollectiveMetrics& item : output.collectives) *metrics.add_collectives() = item;
  return metrics;
}

JobProgress JobCourse::progress(const v1::ValidationProgress& validation) const {
  return {position_, tokens_, validation};
}

void JobCourse::edit(const v1::JobSettings& settings) {
  config_.mutable_training()->set_steps(settings.steps());
  *config_.mutable_lr_scheduler() = settings.lr_scheduler();
  schedule_ = make_lr_schedule(config_.lr_scheduler(), config_.training().steps());
}

}  // namespace meshloom::train
