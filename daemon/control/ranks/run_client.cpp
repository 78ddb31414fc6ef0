// SPDX-License-Identifier: Apache-2.0
#include "daemon/control/ranks/run_client.h"

#include "daemon/train/config/sample_start.h"
#include "daemon/train/loss/batch_parts.h"

namespace meshloom::control {
namespace {

void take_nothing(v1::RankResult) {}

v1::ApplyGradientsResult take_step(v1::RankResult result) {
  v1::ApplyGradientsResult step = std::move(*result.mutable_apply_gradients());
  step.set_memory_bytes(result.peak_memory_bytes());
  return step;
}

v1::DataLoss take_data_loss(v1::RankResult result) {
  return std::move(*result.mutable_data_loss());
}

}  // namespace

Answer<void> RunClient::submit(v1::RankCommand command) const {
  return {executor_, executor_.submit(std::move(command)), take_nothing};
}

Answer<v1::CreateRunResult> RunClient::create(v1::CreateRunCommand command) const {
  command.set_run(run_);
  v1::RankCommand verb;
  *verb.mutable_create_run() = std::move(command);
  return {executor_, executor_.submit(std::move(verb)),
          [](v1::RankResult result) { return std::move(*result.mutable_create_run()); }};
}

RunClient::Step RunClient::step(const train::TrainingBatch& batch,
                                const v1::OptimStepParams& params) const {
  std::vector<v1::RankCommand> commands(2);
  v1::LossCommand& gradients = *commands[0].mutable_loss();
  gradients.set_run(run_);
  gradients.set_backward(true);
  gradients.mutable_training()->set_first_sample(batch.first_sample);
  commands[1].mutable_apply_gradients()->set_run(run_);
  *commands[1].mutable_apply_gradients()->mutable_params() = params;
  const auto tickets = executor_.submit_together(std::move(commands));
  return {{executor_, tickets[0], take_data_loss}, {executor_, tickets[1], take_step}};
}

Answer<v1::DataLoss> RunClient::loss(const train::ValidationBatches& batches) const {
  v1::RankCommand command;
  command.mutable_loss()->set_run(run_);
  v1::ValidationBatches& validation = *command.mutable_loss()->mutable_validation();
  validation.set_set(batches.set);
  validation.set_first(batches.first);
  validation.set_count(batches.count);
  return {executor_, executor_.submit(std::move(command)), take_data_loss};
}

Answer<void> RunClient::export_hf(const std::filesystem::path& folder,
                                  const std::string& dtype) const {
  v1::RankCommand command;
  v1::ExportCommand& verb = *command.mutable_export_();
  verb.set_run(run_);
  verb.set_folder(folder.string());
  verb.set_dtype(dtype);
  return submit(std::move(command));
}

Answer<void> RunClient::remove() const {
  v1::RankCommand command;
  command.mutable_delete_run()->set_run(run_);
  return submit(std::move(command));
}

Answer<v1::LossOutput> RunClient::loss(v1::LossCommand command, const BatchRules& rules) const {
  const v1::LossBatch& batch = command.batch();
  const train::TokenLoss loss = train::check_loss_batch(batch, rules.limits);
  const train::WholeBatch whole = train::whole_batch(loss, batch);
  std::vector<v1::RankCommand> parts(static_cast<std::size_t>(executor_.world_size()));
  for (std::size_t rank = parts.size(); rank-- > 0;) {
    v1::LossCommand& part = *parts[rank].mutable_loss();
    part.set_run(run_);
    part.set_backward(command.backward());
    part.set_train(command.train());
    part.set_samples(whole.samples);
    part.set_counted_tokens(whole.counted_tokens);
    part.set_several_targets(whole.several_targets);
    if (command.has_tokenized()) *part.mutable_tokenized() = command.tokenized();
    *part.mutable_batch() = rank == 0
                                ? std::move(*command.mutable_batch())
                                : train::rank_part(batch, rules.mesh, rules.limits.micro_batch_size,
                                                   static_cast<int>(rank));
  }
  return {executor_, executor_.submit_parts(std::move(parts)),
          [](v1::RankResult result) { return std::move(*result.mutable_loss()); }};
}

Answer<void> RunClient::poison(const std::string& cause) const {
  v1::RankCommand command;
  command.mutable_poison()->set_run(run_);
  command.mutable_poison()->set_cause(cause);
  return submit(std::move(command));
}

Answer<v1::ApplyGradientsResult> RunClient::apply_gradients(
    const v1::OptimStepParams& params) const {
  v1::RankCommand command;
  command.mutable_apply_gradients()->set_run(run_);
  *command.mutable_apply_gradients()->mutable_params() = params;
  return {executor_, executor_.submit(std::move(command)), take_step};
}

Answer<v1::WriteStateResult> RunClient::write_state(v1::WriteStateCommand command) const {
  command.set_run(run_);
  v1::RankCommand verb;
  *verb.mutable_write_state() = std::move(command);
  return {executor_, executor_.submit(std::move(verb)),
          [](v1::RankResult result) { return std::move(*result.mutable_write_state()); }};
}

Answer<void> RunClient::load_state(const std::filesystem::path& folder,
                                   bool without_optimizer) const {
  v1::RankCommand command;
  v1::LoadStateCommand& verb = *command.mutable_load_state();
  verb.set_run(run_);
  verb.set_folder(folder.string());
  verb.set_without_optimizer(without_optimizer);
  return submit(std::move(command));
}

Answer<v1::ParametersOutput> RunClient::get_parameters(v1::GetParametersCommand command) const {
  command.set_run(run_);
  v1::RankCommand verb;
  *verb.mutable_get_parameters() = std::move(command);
  return {executor_, executor_.submit(std::move(verb)),
          [](v1::RankResult result) { return std::move(*result.mutable_parameters()); }};
}

Answer<void> RunClient::set_parameters(v1::SetParametersCommand command) const {
  command.set_run(run_);
  v1::RankCommand verb;
  *verb.mutable_set_parameters() = std::move(command);
  return submit(std::move(verb));
}

Answer<void> RunClient::keep_snapshot(const std::string& name) const {
  v1::RankCommand command;
  command.mutable_keep_snapshot()->set_run(run_);
  command.mutable_keep_snapshot()->set_name(name);
  return submit(std::move(command));
}

Answer<void> RunClient::drop_snapshot(const std::string& name) const {
  v1::RankCommand command;
  command.mutable_drop_snapshot()->set_run(run_);
  command.mutable_drop_snapshot()->set_name(name);
  return submit(std::move(command));
}

Answer<void> RunClient::begin_sample(std::int64_t sample, const SampleOrigin& origin,
                                     const std::vector<train::SampleStart>& sequences) const {
  v1::RankCommand command;
  v1::SampleCommand& verb = *command.mutable_sample();
  verb.set_sample(sample);
  verb.set_run(run_);
  verb.set_source(origin.source);
  verb.set_snapshot(origin.snapshot);
  verb.set_weights_folder(origin.weights_folder.string());
  verb.set_weights_step(origin.weights_step);
  for (const train::SampleStart& start : sequences) {
    v1::SampleSequence& sequence = *verb.add_sequences();
    sequence.mutable_token_ids()->Add(start.prompt.begin(), start.prompt.end());
    *sequence.mutable_params() = start.params;
    sequence.set_drawn_before(static_cast<std::int64_t>(start.drawn_before));
    *sequence.mutable_stop() = start.stop;
    sequence.mutable_end_token_ids()->Add(start.end_tokens.begin(), start.end_tokens.end());
    sequence.set_logprobs(start.log_probs);
  }
  return submit(std::move(command));
}

Answer<v1::AdvanceSampleResult> RunClient::advance_sample(std::int64_t sample,
                                                          std::chrono::milliseconds budget,
                                                          const std::vector<int>& ended) const {
  v1::RankCommand command;
  v1::AdvanceSampleCommand& verb = *command.mutable_advance_sample();
  verb.set_sample(sample);
  verb.set_run(run_);
  verb.set_budget_ms(static_cast<std::int32_t>(budget.count()));
  verb.mutable_ended()->Add(ended.begin(), ended.end());
  return {executor_, executor_.submit(std::move(command)),
          [](v1::RankResult result) { return std::move(*result.mutable_advance_sample()); }};
}

Answer<v1::LossOutput> RunClient::score_sample(std::int64_t sample, v1::LossBatch batch) const {
  v1::RankCommand command;
  v1::ScoreSampleCommand& verb = *command.mutable_score_sample();
  verb.set_run(run_);
  verb.set_sample(sample);
  *verb.mutable_batch() = std::move(batch);
  return {executor_, executor_.submit(std::move(command)),
          [](v1::RankResult result) { return std::move(*result.mutable_loss()); }};
}

Answer<void> RunClient::end_sample(std::int64_t sample) const {
  v1::RankCommand command;
  command.mutable_end_sample()->set_sample(sample);
  return submit(std::move(command));
}

}  // namespace meshloom::control
