// SPDX-License-Identifier: Apache-2.0
#include "daemon/control/ranks/rank_worker.h"

#include <algorithm>
#include <chrono>

#include "daemon/base/as_error.h"
#include "daemon/comm/agreement/status_agreement.h"
#include "daemon/control/host/memory.h"
#include "daemon/control/net/status.h"
#include "daemon/control/ranks/rank_command.h"
#include "daemon/control/ranks/rank_error.h"
#include "daemon/control/ranks/rank_messages.h"
#include "daemon/control/ranks/run_verbs.h"
#include "daemon/train/config/sample_start.h"
#include "kernels/base/log.h"

namespace meshloom::control {
namespace {

void describe(const train::Run& run, v1::CreateRunResult* result) {
  const train::PromptLimits prompts = run.prompt_limits();
  result->set_step_count(run.step());
  result->set_vocab_size(prompts.vocab_size);
  result->set_context_length(prompts.context_length);
  for (const auto& note : run.notes()) result->add_notes(note);
  result->set_plan(run.plan_text());
  const nn::ModelFlops flops = run.flops();
  result->set_flops_per_token(flops.per_token);
  result->set_flops_per_pair(flops.per_pair);
  result->set_data_tokens(run.data_size().tokens);
  result->set_training_samples(run.data_size().samples);
  if (const auto& chat = run.data_size().chat) {
    result->mutable_chat()->set_cut(chat->cut);
    result->mutable_chat()->set_dropped_tokens(chat->dropped_tokens);
    result->mutable_chat()->set_left_out(chat->left_out);
  }
  const train::LossBatchLimits batches = run.limits();
  v1::LossLimits& limits = *result->mutable_loss_limits();
  limits.set_vocab_size(batches.vocab_size);
  limits.set_positions(batches.positions);
  limits.set_tokens(batches.tokens);
  limits.set_micro_batch_size(batches.micro_batch_size);
  *result->mutable_job() = to_message(run.job_progress());
}

train::RunOptions run_options(const v1::CreateRunCommand& command) {
  train::RunOptions options;
  options.folders = to_folders(command.folders());
  options.with_optimizer = !command.without_optimizer();
  options.dropout = command.dropout();
  options.with_data = command.with_data();
  options.allow_fallback = command.allow_fallback();
  options.text = to_text(command.tokenized());
  return options;
}

}  // namespace

RankWorker::RankWorker(int rank, RunFactory& factory, const SourceCache* sources,
                       CommandStops* stops)
    : rank_(rank),
      factory_(factory),
      sources_(sources),
      stops_(stops),
      recoveries_(factory.recoveries()) {}

RankWorker::~RankWorker() = default;

v1::RankResult RankWorker::execute(const v1::RankCommand& command) {
  v1::RankResult result;
  result.set_seq(command.seq());
  result.set_rank(rank_);
  seq_ = command.seq();
  const std::uint64_t recoveries = factory_.recoveries();
  try {
    if (command.epoch() < epoch_)
      throw Aborted(fmt::format("command seq {} has epoch {}, rank {} is at epoch {} already",
                                command.seq(), command.epoch(), rank_, epoch_),
                    "EPOCH_STALE");
    epoch_ = command.epoch();
    dispatch(command, &result);
  } catch (...) {
    const std::exception_ptr error = std::current_exception();
    result.clear_verb();
    set_error(error, &result);
    auto& metadata = *result.mutable_error()->mutable_info()->mutable_metadata();
    metadata.insert({"rank", std::to_string(rank_)});
    if (comm::is_failed_alone(error)) {
      spoil_runs(result.error().message());
    } else if (factory_.recoveries() > recoveries) {
      // All ranks ended this verb alike: they are in step without the recover command.
      recoveries_ = factory_.recoveries();
    }
  }
  const MemoryUse memory = process_memory();
  result.set_memory_bytes(memory.resident);
  result.set_peak_memory_bytes(memory.peak);
  return result;
}

void RankWorker::dispatch(const v1::RankCommand& command, v1::RankResult* result) {
  switch (command.verb_case()) {
    case v1::RankCommand::kCreateRun:
      return create_run(command.create_run(), result->mutable_create_run());
    case v1::RankCommand::kDeleteRun: return delete_run(command.delete_run().run());
    case v1::RankCommand::kSample: return begin_sample(command.sample());
    case v1::RankCommand::kAdvanceSample:
      return advance_sample(command.advance_sample(), result->mutable_advance_sample());
    case v1::RankCommand::kScoreSample:
      return score_sample(command.score_sample(), result->mutable_loss());
    case v1::RankCommand::kEndSample: samples_.erase(command.end_sample().sample()); return;
    case v1::RankCommand::kRecover: return recover(command.recover());
    default: return carry_out(command, result);
  }
}

void RankWorker::carry_out(const v1::RankCommand& command, v1::RankResult* result) {
  if (command.verb_case() == v1::RankCommand::VERB_NOT_SET)
    throw InternalError(fmt::format("rank {}: a command without a verb", rank_));
  LiveRun& target = live(run_of(command));
  try {
    factory_.run_in_step([&] { run_verb(*target.run, command, result); });
  } catch (...) {
    fail_verb(target, command);
  }
}

void RankWorker::fail_verb(LiveRun& target, const v1::RankCommand& command) {
  const std::exception_ptr error = std::current_exception();
  if (target.of_job) {
    // A job cannot go on where what changes its training has failed.
    const bool backward = command.has_loss() && command.loss().backward();
    if (backward || command.has_apply_gradients()) target.failure = base::as_error(error).what();
    std::rethrow_exception(error);
  }
  const bool alike = !comm::ends_the_group(error) && !comm::is_failed_alone(error);
  if (!alike || !target.run->weights_undefined()) std::rethrow_exception(error);
  const Error known = base::as_error(error);
  target.failure = known.what();
  throw RunLost(known);
}

void RankWorker::recover(const v1::RecoverCommand& command) {
  try {
    if (factory_.recoveries() <= command.epoch()) factory_.join_recovery();
  } catch (...) {
    const std::exception_ptr error = std::current_exception();
    spoil_runs(to_details(error).message());
    if (comm::ends_the_group(error)) throw;
  }
  // A later failure waits for a command of its own.
  recoveries_ = std::max(recoveries_, command.epoch() + 1);
}

void RankWorker::check_recovered() const {
  if (factory_.recoveries() != recoveries_)
    throw RunLost(
        FailedPrecondition(fmt::format("rank {} has given this command up with earlier ones: {}",
                                       rank_, last_failure_),
                           "RANKS_RECOVERING"));
}

void RankWorker::spoil_runs(const std::string& failure) {
  last_failure_ = failure;
  for (auto& [name, live] : runs_)
    if (live.failure.empty()) live.failure = failure;
}

void RankWorker::create_run(const v1::CreateRunCommand& command, v1::CreateRunResult* result) {
  check_recovered();
  if (command.run().empty())
    throw InvalidArgument("a run has a name; commands without one are about samples of a source",
                          "RUN_UNNAMED");
  // What runs before it took is not its own.
  if (runs_.empty()) {
    give_back_free_memory();
    begin_peak_memory();
  }
  std::unique_ptr<train::Run> run;
  train::RunOptions options = run_options(command);
  if (stops_ != nullptr)
    options.stopped = [this](bool last) { return stops_->is_stopped(seq_, last); };
  factory_.run_in_step([&] { run = factory_.create(command.config(), options); });
  describe(*run, result);
  delete_run(command.run());
  runs_[command.run()] = {std::move(run), command.with_data()};
}

void RankWorker::delete_run(const std::string& name) {
  std::erase_if(samples_, [&](const auto& item) { return item.second.run == name; });
  runs_.erase(name);
}

void RankWorker::begin_sample(const v1::SampleCommand& command) {
  std::vector<train::SampleStart> starts;
  for (const v1::SampleSequence& sequence : command.sequences())
    starts.push_back({{sequence.token_ids().begin(), sequence.token_ids().end()},
                      sequence.params(),
                      static_cast<std::uint64_t>(sequence.drawn_before()),
                      sequence.logprobs(),
                      {},  // the end of a turn is one of the end tokens here
                      sequence.stop(),
                      {sequence.end_token_ids().begin(), sequence.end_token_ids().end()}});
  LiveSample sample{command.run(), nullptr, nullptr};
  if (!command.run().empty()) {
    LiveRun& target = live(command.run());
    factory_.run_in_step([&] {
      auto begun = command.weights_folder().empty()
                       ? target.run->begin_sample(starts, command.snapshot())
                       : target.run->begin_sample_from(starts, command.weights_folder(),
                                                       command.weights_step());
      sample.of_run = begun.get();
      sample.sample = std::move(begun);
    });
  } else if (sources_) {
    sample.source = sources_->find(command.source());
    sample.sample = sample.source->begin_sample(starts);
  }
  samples_[command.sample()] = std::move(sample);
}

RankWorker::LiveSample& RankWorker::live_sample(std::int64_t number) {
  const auto found = samples_.find(number);
  if (found == samples_.end())
    throw RunGone(fmt::format("sample {} has ended with its run on rank {}", number, rank_));
  return found->second;
}

void RankWorker::score_sample(const v1::ScoreSampleCommand& command, v1::LossOutput* result) {
  LiveSample& sample = live_sample(command.sample());
  live(sample.run);
  factory_.run_in_step([&] { *result = sample.of_run->score(command.batch()); });
}

void RankWorker::advance_sample(const v1::AdvanceSampleCommand& command,
                                v1::AdvanceSampleResult* result) {
  LiveSample& sample = live_sample(command.sample());
  std::int64_t step = 0;
  if (!sample.run.empty()) {
    live(sample.run);
    step = sample.of_run->step();
  } else if (sample.source) {
    step = sample.source->step();
  }
  if (!sample.sample) return;
  const auto begin = std::chrono::steady_clock::now();
  const std::chrono::milliseconds budget(command.budget_ms());
  std::vector<train::SampledToken> tokens;
  // The same on all ranks, before the pass that they next do together.
  sample.sample->end_sequences({command.ended().begin(), command.ended().end()});
  const auto advance = [&] { tokens = sample.sample->advance(budget); };
  if (sample.run.empty())
    advance();
  else
    factory_.run_in_step(advance);
  for (const train::SampledToken& token : tokens) {
    v1::SampledToken& told = *result->add_tokens();
    told.set_token_id(token.id);
    told.set_sequence(static_cast<int>(token.sequence));
    told.set_finish_reason(token.finish);
    told.set_logprob(token.log_prob);
    told.set_tempered_logprob(token.tempered_log_prob);
  }
  const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - begin;
  result->set_seconds(seconds.count());
  result->set_weights_step(step);
  result->set_done(sample.sample->done());
}

RankWorker::LiveRun& RankWorker::live(const std::string& name) {
  const auto found = runs_.find(name);
  if (found == runs_.end())
    throw RunGone(fmt::format("run \"{}\" does not exist on rank {}", name, rank_));
  check_recovered();
  if (!found->second.failure.empty())
    throw RunLost(FailedPrecondition(
        fmt::format("run \"{}\" failed before: {}", name, found->second.failure), "RUN_FAILED"));
  return found->second;
}

LoopEnd run_commands(CommandQueue& queue, RankWorker& worker, ResultSink& results,
                     comm::TrainingPulse* pulse) {
  while (const auto command = queue.pop()) {
    if (command->has_stop()) return LoopEnd::kStopped;
    if (command->has_abort()) return LoopEnd::kClosed;
    if (pulse != nullptr) pulse->begin_command(command->seq());
    const v1::RankResult result = worker.execute(*command);
    if (pulse != nullptr) pulse->end_command();
    results.complete(result);
    if (result.error_scope() == v1::ERROR_SCOPE_RANKS) {
      spdlog::error("command seq {}: {}", result.seq(), result.error().message());
      return LoopEnd::kOutOfStep;
    }
  }
  return LoopEnd::kClosed;
}

}  // namespace meshloom::control
