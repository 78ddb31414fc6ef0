// SPDX-License-Identifier: Apache-2.0
#include "daemon/control/runs/run_sample.h"

#include "daemon/control/net/status.h"

namespace meshloom::control {

Error stale_weights(std::int64_t wanted, std::int64_t step) {
  return FailedPrecondition(
      fmt::format("the weights are those of step {}, not of step {} as asked for", step, wanted),
      "WEIGHTS_STALE", {{"step", std::to_string(step)}, {"weights_step", std::to_string(wanted)}});
}

RunSample::RunSample(Operations& operations, Task task)
    : operations_(operations), task_(std::move(task)) {
  for (std::size_t i = 0; i < task_.starts.size(); ++i)
    output_.add_sequences()->set_prompt(static_cast<int>(i) / task_.samples);
}

void RunSample::start(SampleScheduler& scheduler, Operations& operations, Task task) {
  const std::shared_ptr<RunSample> sample(new RunSample(operations, std::move(task)));
  sample->channel_ = std::make_shared<TokenChannel>([weak = std::weak_ptr(sample)] {
    if (const auto self = weak.lock()) self->collect();
  });
  sample->self_ = sample;
  try {
    scheduler.start({sample->task_.run, "", sample->task_.starts}, sample->channel_);
  } catch (...) {
    sample->self_.reset();
    throw;
  }
  operations.begin(sample->task_.operation);
}

void RunSample::add(const DrawnToken& token) {
  v1::SampledSequence& sequence = *output_.mutable_sequences(static_cast<int>(token.sequence));
  sequence.add_token_ids(static_cast<std::int32_t>(token.id));
  sequence.add_logprobs(token.log_prob);
  const auto& params = task_.starts[token.sequence].params;
  if (params.has_temperature() && params.temperature() != 1.0)
    sequence.add_tempered_logprobs(token.tempered_log_prob);
  sequence.set_weights_step(token.weights_step);
  if (task_.weights_step && token.weights_step != *task_.weights_step)
    other_step_ = token.weights_step;
  if (!token.last) return;
  sequence.set_finish_reason(sequence.token_ids_size() >= params.max_tokens() ? "length" : "stop");
}

void RunSample::collect() {
  std::shared_ptr<RunSample> last;  // outlives the lock
  const std::lock_guard lock(mutex_);
  const TokenChannel::Drawn drawn = channel_->take();
  for (const DrawnToken& token : drawn.tokens) add(token);
  if (!drawn.ended || !self_) return;
  last = std::move(self_);
  if (drawn.error) return operations_.fail(task_.operation, to_details(drawn.error));
  if (other_step_)
    return operations_.fail(task_.operation,
                            to_details(stale_weights(*task_.weights_step, *other_step_)));
  v1::VerbResult result;
  *result.mutable_sample() = std::move(output_);
  operations_.succeed(task_.operation, std::move(result));
}

}  // namespace meshloom::control
