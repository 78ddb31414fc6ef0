// SPDX-License-Identifier: Apache-2.0
#include "daemon/control/rank_worker.h"

#include <algorithm>
#include <vector>

#include "daemon/control/memory_use.h"
#include "daemon/control/status.h"
#include "daemon/train/checkpoint/hf_byte_tokenizer.h"
#include "kernels/base/log.h"

namespace meshloom::control {
namespace {

/// The tokens to continue: given as ids, or as text for a model of bytes.
std::vector<std::int64_t> prompt_tokens(const v1::SampleCommand& command, std::int64_t vocab_size) {
  std::vector<std::int64_t> tokens(command.token_ids().begin(), command.token_ids().end());
  if (!command.prompt().empty()) {
    if (vocab_size != train::kByteVocabulary)
      throw Unimplemented(
          fmt::format(
              "the model's vocabulary has {} tokens and tokenizers are not part of this version: "
              "give token ids instead of text",
              vocab_size),
          "TOKENIZER_NEEDED", {{"field", "prompt"}, {"vocab_size", std::to_string(vocab_size)}});
    for (const char c : command.prompt()) tokens.push_back(static_cast<unsigned char>(c));
  }
  for (const auto token : tokens)
    if (token < 0 || token >= vocab_size)
      throw InvalidArgument(
          fmt::format("token id {} is outside the model's vocabulary of {}", token, vocab_size),
          "TOKEN_OUT_OF_RANGE", {{"field", "token_ids"}});
  return tokens;
}

}  // namespace

RankWorker::RankWorker(int rank, RunFactory& factory, OnToken on_token)
    : rank_(rank),
      factory_(factory),
      on_token_(std::move(on_token)),
      recoveries_(factory.recoveries()) {}

RankWorker::~RankWorker() = default;

v1::RankResult RankWorker::execute(const v1::RankCommand& command) {
  v1::RankResult result;
  result.set_seq(command.seq());
  result.set_rank(rank_);
  const std::uint64_t recoveries = factory_.recoveries();
  try {
    if (command.epoch() < epoch_)
      throw Aborted(fmt::format("command seq {} has epoch {}, rank {} is at epoch {} already",
                                command.seq(), command.epoch(), rank_, epoch_),
                    "EPOCH_STALE");
    epoch_ = command.epoch();
    dispatch(command, &result);
  } catch (...) {
    *result.mutable_error() = to_details(std::current_exception());
    auto& metadata = *result.mutable_error()->mutable_info()->mutable_metadata();
    metadata.insert({"rank", std::to_string(rank_)});
    if (metadata.contains("failed_rank")) {
      spoil_runs(result.error());
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
    case v1::RankCommand::kCreateRun: return create_run(command.create_run(), result);
    case v1::RankCommand::kForwardBackward: {
      const auto& name = command.forward_backward().run();
      return change(name, [&](LiveRun& live) { training_run(live, name).forward_backward(); });
    }
    case v1::RankCommand::kOptimStep:
      return change(command.optim_step().run(), [&](LiveRun& live) { optim_step(live, result); });
    case v1::RankCommand::kEvaluate: {
      const auto& verb = command.evaluate();
      result->set_loss(training_run(live(verb.run()), verb.run()).evaluate(verb.batches()));
      return;
    }
    case v1::RankCommand::kSaveState: {
      const auto& name = command.save_state().run();
      result->set_path(training_run(live(name), name).save_state().string());
      return;
    }
    case v1::RankCommand::kExport: {
      const auto& verb = command.export_();
      training_run(live(verb.run()), verb.run()).export_hf(verb.folder(), verb.dtype());
      return;
    }
    case v1::RankCommand::kSample: return sample(command.seq(), command.sample());
    case v1::RankCommand::kRecover: return recover(command.recover());
    case v1::RankCommand::kDeleteRun: runs_.erase(command.delete_run().run()); return;
    default: throw InternalError(fmt::format("rank {}: a command without a verb", rank_));
  }
}

void RankWorker::recover(const v1::RecoverCommand& command) {
  try {
    if (factory_.recoveries() <= command.epoch()) factory_.join_recovery();
  } catch (...) {
    const v1::ErrorDetails error = to_details(std::current_exception());
    spoil_runs(error);
    if (leaves_ranks_out_of_step(error)) throw;
  }
  // A later failure waits for a command of its own.
  recoveries_ = std::max(recoveries_, command.epoch() + 1);
}

void RankWorker::check_recovered() const {
  if (factory_.recoveries() != recoveries_)
    throw FailedPrecondition(fmt::format("rank {} has given this command up with earlier ones: {}",
                                         rank_, last_failure_),
                             "RANKS_RECOVERING");
}

void RankWorker::spoil_runs(const v1::ErrorDetails& error) {
  last_failure_ = error.message();
  for (auto& [name, live] : runs_)
    if (live.run && live.failure.empty()) live.failure = error.message();
}

void RankWorker::create_run(const v1::CreateRunCommand& command, v1::RankResult* result) {
  LiveRun live;
  if (command.inference_only()) {
    if (rank_ == 0) {
      const auto& folder =
          command.checkpoint().empty() ? command.hf_folder() : command.checkpoint();
      live.sampler = factory_.load_sampler(folder);
      result->set_vocab_size(live.sampler->vocab_size());
    }
  } else {
    check_recovered();
    train::RunOptions options;
    options.name = command.run();
    options.data_dir = command.data_dir();
    options.checkpoint_dir = command.checkpoint_dir();
    options.resume_from = command.resume_from();
    options.resume_older = command.resume_older();
    options.allow_fallback = command.allow_fallback();
    live.run = factory_.create(command.config(), options);
    result->set_step_count(live.run->step());
    result->set_vocab_size(live.run->vocab_size());
    *result->mutable_resolved() = live.run->config();
    for (const auto& note : live.run->notes()) result->add_notes(note);
    result->set_plan(live.run->plan_text());
  }
  runs_[command.run()] = std::move(live);
}

void RankWorker::optim_step(LiveRun& live, v1::RankResult* result) {
  train::Run& run = training_run(live, "");
  *result->mutable_step() = run.optim_step();
  const auto seconds = run.phase_seconds();
  result->mutable_seconds()->insert(seconds.begin(), seconds.end());
  result->set_step_count(run.step());
}

void RankWorker::sample(std::int64_t seq, const v1::SampleCommand& command) {
  LiveRun& target = live(command.run());
  const auto on_token = [&](std::int64_t token) { return on_token_ && on_token_(seq, token); };
  if (target.sampler) {
    target.sampler->sample(prompt_tokens(command, target.sampler->vocab_size()), command.params(),
                           on_token);
  } else if (target.run) {
    target.run->sample(prompt_tokens(command, target.run->vocab_size()), command.params(),
                       on_token);
  }
}

RankWorker::LiveRun& RankWorker::live(const std::string& name) {
  const auto found = runs_.find(name);
  if (found == runs_.end())
    throw NotFound(fmt::format("run \"{}\" does not exist on rank {}", name, rank_),
                   "RUN_NOT_FOUND");
  if (found->second.run) check_recovered();
  if (!found->second.failure.empty())
    throw FailedPrecondition(
        fmt::format("run \"{}\" failed before: {}", name, found->second.failure), "RUN_FAILED");
  return found->second;
}

train::Run& RankWorker::training_run(LiveRun& live, const std::string& name) {
  if (!live.run)
    throw FailedPrecondition(fmt::format("run \"{}\" is for generation only", name),
                             "NO_OPTIMIZER");
  return *live.run;
}

void RankWorker::change(const std::string& name, const std::function<void(LiveRun&)>& verb) {
  LiveRun& target = live(name);
  try {
    verb(target);
  } catch (const std::exception& error) {
    target.failure = error.what();
    throw;
  }
}

}  // namespace meshloom::control
