// SPDX-License-Identifier: Apache-2.0
#include "daemon/control/generate_stream.h"

#include <algorithm>

#include "daemon/train/checkpoint/hf_byte_tokenizer.h"
#include "daemon/train/field_error.h"
#include "daemon/train/sampling_params.h"

namespace meshloom::control {
namespace {

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

/// A sample can go on with the job's newest model.
bool is_run_gone(const std::exception_ptr& error) {
  try {
    std::rethrow_exception(error);
  } catch (const Error& known) {
    return known.reason() == "RUN_NOT_FOUND";
  } catch (...) {
    return false;
  }
}

}  // namespace

GenerateStream::GenerateStream(StreamHost& host, grpc::CallbackServerContext& context,
                               SampleSources& sources, const v1::GenerateRequest& request)
    : Stream(host, context, "Generate"), sources_(sources), request_(request) {}

GenerateStream::~GenerateStream() {
  if (channel_) channel_->leave();
}

bool GenerateStream::produce() {
  if (!begun_) {
    begun_ = true;
    params_ = checked_params(request_);
    begin(/*live=*/true);
  }
  if (!channel_) {
    const std::lock_guard lock(mutex_);
    if (!arrived_) return false;
    source_ready(*arrived_);
    arrived_.reset();
  }
  write_drawn(channel_->take());
  return false;
}

void GenerateStream::begin(bool live) {
  const SampleSources::Place place = sources_.find(request_, live);
  live_run_ = place.live_run;
  limits_ = place.limits;
  channel_.reset();
  if (!live_run_.empty()) return start_sample();
  sources_.cache().request(
      place.folder, [stream = weak_from_this(), wake = waker()](const SourceCache::Source* source) {
        const auto self = std::static_pointer_cast<GenerateStream>(stream.lock());
        if (!self || !source) return self != nullptr;
        {
          const std::lock_guard lock(self->mutex_);
          self->arrived_ = *source;
        }
        wake();
        return true;
      });
}

void GenerateStream::source_ready(const SourceCache::Source& source) {
  if (source.error) std::rethrow_exception(source.error);
  loaded_ = source;
  limits_ = loaded_.sampler->prompt_limits();
  start_sample();
}

void GenerateStream::start_sample() {
  if (tokens_.empty())
    tokens_ = train::prompt_tokens(request_.prompt(), request_.token_ids(), limits_);
  SampleTask task{live_run_, loaded_.id, {}};
  task.start.prompt = tokens_;
  // What one sample would look back at, had it come here.
  if (drawn_ > 0 && static_cast<std::int64_t>(tokens_.size()) >= limits_.context_length)
    task.start.prompt.assign(tokens_.end() - std::max<std::int64_t>(limits_.context_length / 2, 1),
                             tokens_.end());
  task.start.params = params_;
  task.start.params.set_max_tokens(params_.max_tokens() - static_cast<int>(drawn_));
  task.start.drawn_before = static_cast<std::uint64_t>(drawn_);
  channel_ = std::make_shared<TokenChannel>(waker());
  sources_.scheduler().start(std::move(task), channel_);
}

void GenerateStream::write_drawn(const TokenChannel::Drawn& drawn) {
  for (const DrawnToken& token : drawn.tokens) {
    tokens_.push_back(token.id);
    ++drawn_;
    v1::GenerateResponse response;
    response.set_token_id(token.id);
    response.set_weights_step(token.weights_step);
    if (limits_.vocab_size == train::kByteVocabulary)
      response.set_text(text_.append(static_cast<unsigned char>(token.id)));
    write(std::move(response));
  }
  if (!drawn.ended) return;
  if (!drawn.error) return write_end();
  if (live_run_.empty() || !is_run_gone(drawn.error)) std::rethrow_exception(drawn.error);
  begin(/*live=*/false);
}

void GenerateStream::write_end() {
  v1::GenerateResponse response;
  if (limits_.vocab_size == train::kByteVocabulary) response.set_text(text_.finish());
  response.set_done(true);
  response.set_finish_reason(drawn_ >= params_.max_tokens() ? "length" : "stop");
  write(std::move(response));
  finish();
}

}  // namespace meshloom::control
