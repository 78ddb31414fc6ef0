// SPDX-License-Identifier: Apache-2.0
#include "daemon/control/ranks/run_verbs.h"

#include <chrono>
#include <memory>

#include "daemon/control/ranks/rank_messages.h"
#include "kernels/base/error.h"

namespace meshloom::control {
namespace {

void compute_loss(train::Run& run, const v1::LossCommand& verb, v1::RankResult* result) {
  if (verb.has_training()) {
    const train::BatchWork work =
        run.forward_backward(train::TrainingBatch{verb.training().first_sample()});
    v1::DataLoss& told = *result->mutable_data_loss();
    told.set_tokens(work.tokens);
    told.set_work_tokens(work.work_tokens);
    told.set_attention_pairs(work.attention_pairs);
    told.set_labels(work.labels);
    told.set_bytes(work.bytes);
    return;
  }
  if (verb.has_validation()) {
    const v1::ValidationBatches& of = verb.validation();
    v1::DataLoss& losses = *result->mutable_data_loss();
    for (const train::LossSum& batch : run.forward({of.set(), of.first(), of.count()})) {
      v1::BatchLoss& told = *losses.add_losses();
      told.set_loss(batch.loss);
      told.set_labels(batch.labels);
      told.set_bytes(batch.bytes);
      told.set_tokens(batch.tokens);
    }
    return;
  }
  train::WholeBatch whole = {verb.samples(), verb.counted_tokens(), verb.several_targets()};
  if (verb.has_tokenized())
    whole.text = std::make_shared<const train::TokenizedText>(to_text(verb.tokenized()));
  *result->mutable_loss() = verb.backward() ? run.forward_backward(verb.batch(), whole)
                                            : run.forward(verb.batch(), whole, verb.train());
}

void apply_gradients(train::Run& run, const v1::OptimStepParams& params,
                     v1::ApplyGradientsResult* result) {
  train::StepOutput output = run.optim_step(params);
  *result->mutable_output() = std::move(output.values);
  result->set_step_seconds(output.step_seconds);
  if (output.core_times) {
    result->mutable_core_times()->set_ran(output.core_times->ran);
    result->mutable_core_times()->set_waited(output.core_times->waited);
  }
  result->mutable_seconds()->insert(output.phase_seconds.begin(), output.phase_seconds.end());
  for (v1::CollectiveMetrics& item : output.collectives)
    *result->add_collectives() = std::move(item);
}

void write_state(train::Run& run, const v1::WriteStateCommand& verb, v1::WriteStateResult* result) {
  const auto begin = std::chrono::steady_clock::now();
  if (verb.has_job()) {
    run.save_checkpoint(to_progress(verb.job()), verb.job().keep_latest_k());
  } else {
    const auto& metadata = verb.user_metadata();
    run.save_state(verb.folder(), {metadata.begin(), metadata.end()});
  }
  const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - begin;
  result->set_step(run.step());
  result->set_seconds(seconds.count());
}

void get_parameters(train::Run& run, const v1::GetParametersCommand& verb,
                    v1::ParametersOutput* result) {
  for (v1::ParameterValue& value : run.get_parameters({verb.names().begin(), verb.names().end()}))
    *result->add_parameters() = std::move(value);
}

}  // namespace

void run_verb(train::Run& run, const v1::RankCommand& command, v1::RankResult* result) {
  switch (command.verb_case()) {
    case v1::RankCommand::kLoss: return compute_loss(run, command.loss(), result);
    case v1::RankCommand::kPoison: return run.poison(command.poison().cause());
    case v1::RankCommand::kApplyGradients:
      return apply_gradients(run, command.apply_gradients().params(),
                             result->mutable_apply_gradients());
    case v1::RankCommand::kWriteState:
      return write_state(run, command.write_state(), result->mutable_write_state());
    case v1::RankCommand::kLoadState:
      return run.load_state(command.load_state().folder(),
                            !command.load_state().without_optimizer());
    case v1::RankCommand::kExport:
      return run.export_hf(command.export_().folder(), command.export_().dtype());
    case v1::RankCommand::kGetParameters:
      return get_parameters(run, command.get_parameters(), result->mutable_parameters());
    case v1::RankCommand::kSetParameters: {
      const auto& values = command.set_parameters().parameters();
      return run.set_parameters({values.begin(), values.end()});
    }
    case v1::RankCommand::kKeepSnapshot: return run.keep_snapshot(command.keep_snapshot().name());
    case v1::RankCommand::kDropSnapshot: return run.drop_snapshot(command.drop_snapshot().name());
    default: throw InternalError("no verb of a run");
  }
}

}  // namespace meshloom::control
