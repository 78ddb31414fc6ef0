// SPDX-License-Identifier: Apache-2.0
#include "daemon/control/ranks/job_verbs.h"

#include <chrono>

#include "kernels/base/error.h"

namespace meshloom::control {
namespace {

void evaluate(train::Run& run, const v1::EvaluateCommand& verb, v1::EvaluateResult* result) {
  for (const train::LossSum& batch : run.evaluate(verb.first_batch(), verb.batches(), verb.set())) {
    v1::BatchLoss& told = *result->add_losses();
    told.set_loss(batch.loss);
    told.set_labels(batch.labels);
  }
}

void optim_step(train::Run& run, v1::OptimStepResult* result) {
  *result->mutable_metrics() = run.optim_step();
  const auto seconds = run.phase_seconds();
  result->mutable_seconds()->insert(seconds.begin(), seconds.end());
}

void save_state(train::Run& run, const v1::SaveStateCommand& verb, v1::SaveStateResult* result) {
  const auto begin = std::chrono::steady_clock::now();
  result->set_folder(run.save_state(verb.progress()).string());
  const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - begin;
  result->set_seconds(seconds.count());
}

}  // namespace

bool is_job_verb(const v1::RankCommand& command) {
  switch (command.verb_case()) {
    case v1::RankCommand::kForwardBackward:
    case v1::RankCommand::kOptimStep:
    case v1::RankCommand::kEvaluate:
    case v1::RankCommand::kEditRun:
    case v1::RankCommand::kSaveState: return true;
    default: return false;
  }
}

bool changes_training(const v1::RankCommand& command) {
  return command.has_forward_backward() || command.has_optim_step();
}

void run_job_verb(train::Run& run, const v1::RankCommand& command, v1::RankResult* result) {
  switch (command.verb_case()) {
    case v1::RankCommand::kForwardBackward: return run.forward_backward();
    case v1::RankCommand::kOptimStep: return optim_step(run, result->mutable_optim_step());
    case v1::RankCommand::kEvaluate:
      return evaluate(run, command.evaluate(), result->mutable_evaluate());
    case v1::RankCommand::kEditRun: return run.edit(command.edit_run().settings());
    case v1::RankCommand::kSaveState:
      return save_state(run, command.save_state(), result->mutable_save_state());
    default: throw InternalError("no verb of a job's run");
  }
}

}  // namespace meshloom::control
