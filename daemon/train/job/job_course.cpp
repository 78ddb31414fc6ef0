// SPDX-License-Identifier: Apache-2.0
#include "daemon/train/job/job_course.h"

#include "daemon/train/run/run_mesh.h"

namespace meshloom::train {

JobCourse::JobCourse(const v1::RunConfig& config, Begin begin)
    : config_(config),
      schedule_(make_lr_schedule(config.lr_scheduler(), config.training().steps())),
      flops_(begin.flops),
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

v1::StepMetrics JobCourse::done(const BatchWork& work, const StepOutput& output) {
  position_ += config_.training().global_batch_size();
  tokens_ += work.tokens;
  v1::StepMetrics metrics;
  metrics.set_step(output.values.step());
  metrics.set_loss(output.values.loss());
  metrics.set_grad_norm(output.values.grad_norm());
  metrics.set_lr(output.values.lr());
  metrics.set_tokens(tokens_);
  const auto labels = static_cast<double>(work.labels);
  const LossSum sum = {metrics.loss() * labels, labels, work.bytes};
  if (const auto bits = bits_per_byte({&sum, 1})) metrics.set_bits_per_byte(*bits);
  metrics.set_tokens_per_second(static_cast<double>(work.tokens) / output.step_seconds);
  if (peak_flops_ > 0.0) {
    const double peak = peak_flops_ * mesh_layout(config_.mesh()).size();
    const double flops = static_cast<double>(work.work_tokens) * flops_.per_token +
                         work.attention_pairs * flops_.per_pair;
    metrics.set_mfu(flops / (output.step_seconds * peak));
  }
  for (const v1::CollectiveMetrics& item : output.collectives) *metrics.add_collectives() = item;
  return metrics;
}

JobProgress JobCourse::progress(const v1::ValidationProgress& validation) const {
  return {position_, tokens_, validation};
}

void JobCourse::edit(const v1::JobSettings& settings) {
  config_.mutable_training()->set_steps(settings.steps());
  if (settings.has_lr()) config_.mutable_optimizer()->set_lr(settings.lr());
  *config_.mutable_lr_scheduler() = settings.lr_scheduler();
  schedule_ = make_lr_schedule(config_.lr_scheduler(), config_.training().steps());
}

}  // namespace meshloom::train
