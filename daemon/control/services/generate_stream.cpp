// SPDX-License-Identifier: Apache-2.0
#include "daemon/control/services/generate_stream.h"

#include <algorithm>
#include <utility>

#include "daemon/base/field_error.h"
#include "daemon/control/net/status.h"
#include "daemon/control/ranks/rank_error.h"
#include "daemon/control/services/generate_request.h"
#include "daemon/control/services/source_field.h"
#include "daemon/train/config/sample_start.h"
#include "daemon/train/config/sampling_params.h"

namespace meshloom::control {
namespace {

/// What ended a sequence: a client of this call is not told which of the stops it was.
const char* reason_text(v1::FinishReason finish) {
  if (finish == v1::FINISH_REASON_LENGTH) return "length";
  return finish == v1::FINISH_REASON_CONTEXT ? "context" : "stop";
}

/// A sample can go on with the job's newest model.
bool is_run_gone(const std::exception_ptr& error) {
  try {
    std::rethrow_exception(error);
  } catch (const RunGone&) {
    return true;
  } catch (...) {
    return false;
  }
}

/// What is wrong with the files of a model is said of the field that names them.
[[noreturn]] void rethrow_of_source(const std::exception_ptr& error,
                                    const v1::GenerateRequest& request) {
  try {
    std::rethrow_exception(error);
  } catch (const Error& wrong) {
    const bool is_of_files =
        wrong.kind() == ErrorKind::kInvalidArgument || wrong.kind() == ErrorKind::kUnimplemented;
    if (!is_of_files || wrong.metadata().contains("field")) throw;
    base::throw_with_field(wrong, source_field(request));
  }
}

}  // namespace

GenerateStream::GenerateStream(StreamHost& host, const Caller& caller, SampleSources& sources,
                               const v1::GenerateRequest& request)
    : Stream(host, caller, "Generate"), sources_(sources), request_(request) {}

GenerateStream::~GenerateStream() { let_go(); }

void GenerateStream::let_go() {
  if (channel_) channel_->leave();
  cache_memory_.release();
}

bool GenerateStream::produce() {
  if (!begun_) {
    begun_ = true;
    check_request_size(request_);
    checked_params(request_);
    begin(/*live=*/true);
  }
  if (!channel_) {
    const std::lock_guard lock(mutex_);
    if (!arrived_) return false;
    if (arrived_->error) rethrow_of_source(arrived_->error, request_);
    loaded_ = *arrived_;
    limits_ = loaded_.sampler->prompt_limits();
    start_sample();
    arrived_.reset();
  }
  const TokenChannel::Drawn drawn = channel_->take();
  for (const DrawnToken& token : drawn.tokens) write_token(token);
  // Stop strings may end all of them before the sample has.
  if (std::all_of(sequences_.begin(), sequences_.end(),
                  [](const Sequence& sequence) { return sequence.done; })) {
    finish();
    return false;
  }
  if (!drawn.ended) return false;
  check_internal(drawn.error != nullptr, "generate: the sample ended before its sequences");
  if (live_run_.empty() || !is_run_gone(drawn.error)) std::rethrow_exception(drawn.error);
  begin(/*live=*/false);
  return false;
}

void GenerateStream::begin(bool live) {
  const SampleSources::Place place = sources_.find(request_, live);
  live_run_ = place.live_run;
  limits_ = place.limits;
  channel_.reset();
  if (!live_run_.empty()) return start_sample();
  sources_.cache().request(
      place.folder, [stream = weak_from_this()](const SourceCache::Source* source) {
        const auto self = std::static_pointer_cast<GenerateStream>(stream.lock());
        if (!self || !source) return self != nullptr;
        {
          const std::lock_guard lock(self->mutex_);
          self->arrived_ = *source;
        }
        self->waker()->wake();
        return true;
      });
}

train::SampleStart GenerateStream::start_of(const Sequence& sequence) const {
  train::SampleStart start{sequence.tokens, sequence.params,
                           static_cast<std::uint64_t>(sequence.drawn)};
  // One that goes on past its context looks back at so much when that has become full.
  const std::int64_t half = std::max<std::int64_t>(limits_.context_length / 2, 1);
  if (static_cast<std::int64_t>(sequence.tokens.size()) > limits_.context_length)
    start.prompt.assign(sequence.tokens.end() - half, sequence.tokens.end());
  start.params.set_max_tokens(sequence.params.max_tokens() - static_cast<int>(sequence.drawn));
  start.turn_ends = sequence.turn_ends;
  train::set_ends(request_.stop(), limits_, &start);
  return start;
}

void GenerateStream::check_wanted() const {
  if (ended()) throw Cancelled("the client has gone");
}

void GenerateStream::make_sequences() {
  train::check_sample_stop(request_.stop(), limits_, "stop");
  v1::SamplingParams params = request_.params();
  notes_ = train::take_generation_defaults(limits_.generation, &params);
  notes_.insert(notes_.end(), limits_.notes.begin(), limits_.notes.end());
  if (begins_by_itself(request_)) {
    std::string beginning;
    train::beginning_tokens(limits_, "", &beginning);
    notes_.push_back("without a prompt the sequence begins with " + beginning);
  }
  train::resolve_sampling_params(params, "params");
  const auto& strings = request_.stop().strings();
  const auto stop = [this] { check_wanted(); };
  std::vector<std::string> rendered;
  for (train::SampleStart& start : sequence_starts(request_, params, limits_, stop, &rendered)) {
    check_wanted();
    Sequence& sequence =
        sequences_.emplace_back(TokenText(limits_, start.prompt, {strings.begin(), strings.end()}));
    sequence.tokens = std::move(start.prompt);
    sequence.params = std::move(start.params);
    sequence.turn_ends = std::move(start.turn_ends);
    sequence.rendered = std::move(rendered[sequences_.size() - 1]);
  }
}

void GenerateStream::start_sample() {
  if (sequences_.empty()) make_sequences();
  SampleTask task{live_run_, {loaded_.id, ""}, {}};
  drawing_.clear();
  for (std::size_t i = 0; i < sequences_.size(); ++i) {
    if (sequences_[i].done) continue;
    drawing_.push_back(i);
    task.sequences.push_back(start_of(sequences_[i]));
  }
  cache_memory_.release();
  cache_memory_ = sources_.hold_cache(cache_need(limits_, task.sequences));
  channel_ = std::make_shared<TokenChannel>(waker());
  sources_.scheduler().start(std::move(task), channel_);
}

void GenerateStream::write_token(const DrawnToken& token) {
  const std::size_t index = drawing_.at(token.sequence);
  Sequence& sequence = sequences_[index];
  if (sequence.done) return;  // drawn before the ranks heard of its stop string
  sequence.tokens.push_back(token.id);
  ++sequence.drawn;
  v1::GenerateResponse response;
  for (std::string& note : std::exchange(notes_, {})) response.add_notes(std::move(note));
  response.set_index(static_cast<int>(index));
  response.set_seed(sequence.params.seed());
  response.set_rendered_prompt(std::exchange(sequence.rendered, {}));
  response.set_token_id(token.id);
  response.set_weights_step(token.weights_step);
  response.set_text(sequence.text.add(token.id));
  write(std::move(response));
  if (!token.last()) {
    if (!sequence.text.stopped()) return;
    channel_->end_sequence(token.sequence);
  }
  sequence.done = true;
  v1::GenerateResponse end;
  end.set_index(static_cast<int>(index));
  end.set_seed(sequence.params.seed());
  end.set_text(sequence.text.finish());
  end.set_done(true);
  end.set_finish_reason(sequence.text.stopped() ? "stop" : reason_text(token.finish));
  write(std::move(end));
}

}  // namespace meshloom::control
