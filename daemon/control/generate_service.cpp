// SPDX-License-Identifier: Apache-2.0
#include "daemon/control/generate_service.h"

#include <algorithm>

#include "daemon/control/byte_text.h"
#include "daemon/control/checkpoint_files.h"
#include "daemon/control/listen_address.h"
#include "daemon/control/names.h"
#include "daemon/control/status.h"
#include "daemon/train/checkpoint/hf_byte_tokenizer.h"
#include "daemon/train/field_error.h"
#include "daemon/train/sampling_params.h"

namespace meshloom::control {
namespace {

constexpr int kMostCalls = 16;
constexpr std::size_t kMostPromptTokens = 262'144;  // a byte of text is a token

/// The request's parameters with defaults, checked.
v1::SamplingParams checked_params(const v1::GenerateRequest& request) {
  v1::SamplingParams params = request.params();
  train::resolve_sampling_params(params, "params");
  if (params.max_tokens() > kMostTokens)
    train::refuse_field("params.max_tokens", "{} is more than {}", params.max_tokens(),
                        kMostTokens);
  const std::size_t longest = std::max<std::size_t>(
      request.prompt().size(), static_cast<std::size_t>(request.token_ids_size()));
  if (longest > kMostPromptTokens)
    train::refuse_field(request.prompt().empty() ? "token_ids" : "prompt",
                        "{} tokens are more than the {} that a request may give", longest,
                        kMostPromptTokens);
  if (request.prompt().empty() == (request.token_ids_size() == 0))
    train::refuse_field("prompt", "give either a prompt or token_ids");
  return params;
}

/// Writes one response per token and the last one with the reason of the end.
class TokenWriter {
 public:
  TokenWriter(grpc::ServerWriter<v1::GenerateResponse>& writer, std::int64_t vocab_size)
      : writer_(writer), bytes_(vocab_size == train::kByteVocabulary) {}

  bool write(std::int64_t token) {
    ++count_;
    v1::GenerateResponse response;
    response.set_token_id(token);
    if (bytes_) response.set_text(text_.append(static_cast<unsigned char>(token)));
    return writer_.Write(response);
  }

  void finish(int max_tokens, bool out_of_time) {
    v1::GenerateResponse response;
    if (bytes_) response.set_text(text_.finish());
    response.set_done(true);
    response.set_finish_reason(count_ >= max_tokens ? "length" : out_of_time ? "time" : "stop");
    writer_.Write(response);
  }

 private:
  grpc::ServerWriter<v1::GenerateResponse>& writer_;
  bool bytes_;
  int count_ = 0;
  ByteText text_;
};

}  // namespace

GenerateServiceImpl::GenerateServiceImpl(JobStore& store, Executor& executor, const StateDir& state,
                                         ResolvePath resolve, FindLimits find_limits,
                                         HoldMemory hold_memory)
    : store_(store),
      executor_(executor),
      state_(state),
      resolve_(std::move(resolve)),
      find_limits_(std::move(find_limits)),
      hold_memory_(std::move(hold_memory)),
      slots_("generations", kMostCalls) {}

GenerateServiceImpl::Source GenerateServiceImpl::find_source(
    const v1::GenerateRequest& request) const {
  Source source;
  if (request.has_job()) {
    const std::string id = parse_job_name(request.job());
    const v1::Job job = store_.get(id);
    if (job.state() == v1::JOB_STATE_RUNNING && job.vocab_size() > 0) {
      // A verb that refuses it would interrupt the ranks.
      train::prompt_tokens(request.prompt(), request.token_ids(), find_limits_(job.resolved()));
      source.live_run = id;
      source.vocab_size = job.vocab_size();
      return source;
    }
    source.folder = newest_model(state_, job);
    if (source.folder.empty())
      throw FailedPrecondition(
          fmt::format("job \"{}\" has neither a checkpoint nor an export yet", id), "NO_CHECKPOINT",
          {{"job", id}});
  } else if (request.has_checkpoint()) {
    const CheckpointName name = parse_checkpoint_name(request.checkpoint());
    source.folder = checkpoint_folder(state_, store_.get(name.job), name.folder);
  } else if (request.has_hf_folder()) {
    source.folder = resolve_(request.hf_folder());
  } else {
    train::refuse_field("source", "give a job, a checkpoint or an hf_folder");
  }
  return source;
}

GenerateServiceImpl::Sampling GenerateServiceImpl::start(const v1::GenerateRequest& request,
                                                         const v1::SamplingParams& params) {
  const Source source = find_source(request);
  Sampling sampling{.vocab_size = source.vocab_size};
  std::string run = source.live_run;
  if (run.empty()) {
    if (hold_memory_) sampling.memory = hold_memory_(source.folder);
    // A slash keeps the name apart from those of jobs.
    run = fmt::format("generate/{}", next_++);
    v1::RankCommand create;
    create.mutable_create_run()->set_run(run);
    create.mutable_create_run()->set_inference_only(true);
    create.mutable_create_run()->set_hf_folder(source.folder.string());
    sampling.vocab_size = executor_.run(std::move(create)).vocab_size();
  }
  v1::RankCommand command;
  auto& sample = *command.mutable_sample();
  sample.set_run(run);
  sample.set_prompt(request.prompt());
  *sample.mutable_token_ids() = request.token_ids();
  *sample.mutable_params() = params;
  sampling.ticket = executor_.submit(
      std::move(command),
      [tokens = sampling.tokens](std::int64_t token) { return tokens->push(token); });
  if (source.live_run.empty()) {
    v1::RankCommand remove;
    remove.mutable_delete_run()->set_run(run);
    executor_.submit(std::move(remove));
  }
  return sampling;
}

void GenerateServiceImpl::generate(grpc::ServerContext& context, const v1::GenerateRequest& request,
                                   grpc::ServerWriter<v1::GenerateResponse>& writer) {
  const Slots::Slot slot = slots_.take(client_of_peer(context.peer()));
  const v1::SamplingParams params = checked_params(request);
  const Sampling sampling = start(request, params);
  TokenWriter out(writer, sampling.vocab_size);
  bool listening = true;
  const auto drain = [&](std::chrono::milliseconds timeout) {
    while (const auto token = sampling.tokens->pop(timeout)) {
      listening = listening && out.write(*token);
      if (!listening) sampling.tokens->leave();
    }
  };
  constexpr std::chrono::milliseconds kLookUp{50};
  while (!executor_.done(sampling.ticket)) {
    drain(kLookUp);
    if (context.IsCancelled()) sampling.tokens->leave();
  }
  executor_.wait(sampling.ticket);
  drain(std::chrono::milliseconds(0));
  if (listening) out.finish(params.max_tokens(), sampling.tokens->out_of_time());
}

grpc::Status GenerateServiceImpl::Generate(grpc::ServerContext* context,
                                           const v1::GenerateRequest* request,
                                           grpc::ServerWriter<v1::GenerateResponse>* writer) {
  return guarded("Generate", [&] { generate(*context, *request, *writer); });
}

}  // namespace meshloom::control
