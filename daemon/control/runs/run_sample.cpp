// SPDX-License-Identifier: Apache-2.0
#include "daemon/control/runs/run_sample.h"

#include "daemon/control/net/status.h"
#include "daemon/train/config/sample_start.h"

namespace meshloom::control {
namespace {

/// Of tokens that each follow the one before.
template <typename Drawn>
void add_datum(const std::vector<std::int64_t>& prompt, const Drawn& drawn, v1::LossBatch* batch) {
  v1::Datum& datum = *batch->add_data();
  for (const std::int64_t id : prompt) datum.add_tokens(static_cast<std::int32_t>(id));
  datum.mutable_tokens()->Add(drawn.begin(), drawn.end());
  datum.mutable_targets()->Add(datum.tokens().begin() + 1, datum.tokens().end());
  datum.mutable_tokens()->RemoveLast();
}

/// Nothing more of a sample is drawn.
class DrawingStop final : public Operations::Stoppable {
 public:
  explicit DrawingStop(std::shared_ptr<TokenChannel> channel) : channel_(std::move(channel)) {}
  bool request_stop() override {
    channel_->leave();
    return true;
  }

 private:
  const std::shared_ptr<TokenChannel> channel_;
};

}  // namespace

Error stale_weights(std::int64_t wanted, std::int64_t step) {
  return FailedPrecondition(
      fmt::format("the weights are those of step {}, not of step {} as asked for", step, wanted),
      "WEIGHTS_STALE", {{"step", std::to_string(step)}, {"weights_step", std::to_string(wanted)}});
}

std::shared_ptr<SampleProgress> RunSample::make_progress(const SampleOrder& order) {
  const v1::SamplingParams& params = order.starts.at(0).params;
  std::vector<std::uint64_t> seeds;
  for (const train::SampleStart& start : order.starts) seeds.push_back(start.params.seed());
  auto progress = std::make_shared<SampleProgress>(SampleProgress::Shape{
      std::move(seeds), order.samples, params.has_temperature() && params.temperature() != 1.0,
      order.text, order.prompt_log_probs, order.tokenizer, order.stop_strings});
  for (std::size_t i = 0; i < order.starts.size(); ++i) progress->follow(i, order.starts[i].prompt);
  return progress;
}

RunSample::RunSample(Operations& operations, std::string operation, SampleOrder order,
                     std::shared_ptr<SampleProgress> progress)
    : operations_(operations),
      operation_(std::move(operation)),
      order_(std::move(order)),
      progress_(std::move(progress)) {}

void RunSample::start(SampleScheduler& scheduler, Operations& operations, const std::string& run,
                      const std::string& operation, SampleOrder order,
                      std::shared_ptr<SampleProgress> progress) {
  const std::shared_ptr<RunSample> sample(
      new RunSample(operations, operation, std::move(order), std::move(progress)));
  sample->channel_ = std::make_shared<TokenChannel>(sample);
  sample->self_ = sample;
  // Before it draws: whoever watches it sees that it runs before its tokens.
  if (!operations.begin(operation, std::make_shared<DrawingStop>(sample->channel_))) {
    sample->self_.reset();  // it was cancelled before
    return;
  }
  try {
    SampleTask task{run, sample->order_.origin, sample->order_.starts};
    if (sample->order_.exact_log_probs || !sample->scored_prompts().empty()) task.scorer = sample;
    scheduler.start(std::move(task), sample->channel_);
  } catch (...) {
    sample->self_.reset();
    throw;
  }
}

void RunSample::add(const DrawnToken& token) {
  if (!progress_->add(token)) return;
  if (progress_->stopped(token.sequence)) channel_->end_sequence(token.sequence);
  if (order_.weights_step && token.weights_step != *order_.weights_step)
    other_step_ = token.weights_step;
}

void RunSample::wake() {
  std::shared_ptr<RunSample> last;
  TokenChannel::Drawn drawn;
  {
    const std::lock_guard lock(mutex_);
    drawn = channel_->take();
    try {
      for (const DrawnToken& token : drawn.tokens) add(token);
    } catch (const Error&) {
      // What a tokenizer of a stranger makes of tokens may take too long.
      channel_->leave();
      drawn = {{}, true, std::current_exception()};
    }
    if (!drawn.tokens.empty()) operations_.progressed(operation_);
    if (!drawn.ended || !self_) return;
    last = std::move(self_);
  }
  end(drawn.error);  // without the lock: the run's is taken there
}

void RunSample::end(const std::exception_ptr& error) {
  // A snapshot that was drawn from to the end is what was asked for; the run's own weights may be
  // those of another epoch.
  const bool of_run = order_.origin.snapshot.empty();
  if (error || of_run) {
    const auto run = order_.run.lock();
    if (run && run->end_lost_sample(order_.epoch, operation_, error)) return;
  }
  if (error) return operations_.fail(operation_, to_details(error));
  if (other_step_)
    return operations_.fail(operation_,
                            to_details(stale_weights(*order_.weights_step, *other_step_)));
  operations_.succeed(operation_, progress_->result());
}

std::vector<std::size_t> RunSample::scored_prompts() const {
  std::vector<std::size_t> firsts;
  const auto samples = static_cast<std::size_t>(order_.samples);
  for (std::size_t i = 0; order_.prompt_log_probs && i < order_.starts.size(); i += samples)
    if (order_.starts[i].prompt.size() > 1) firsts.push_back(i);
  return firsts;
}

v1::LossBatch RunSample::to_score() const {
  v1::LossBatch batch;
  batch.set_loss("cross_entropy");
  for (const std::size_t first : scored_prompts())
    add_datum(order_.starts[first].prompt, std::vector<std::int32_t>(), &batch);
  if (!order_.exact_log_probs) return batch;
  const auto drawn = progress_->result();
  for (std::size_t i = 0; i < order_.starts.size(); ++i)
    add_datum(order_.starts[i].prompt, drawn->sample().sequences(static_cast<int>(i)).token_ids(),
              &batch);
  return batch;
}

void RunSample::take_scores(const v1::LossOutput& output) {
  int next = 0;
  progress_->complete([&](v1::SampleOutput& sample) {
    for (const std::size_t first : scored_prompts())
      *sample.mutable_prompts(static_cast<int>(first) / order_.samples)->mutable_logprobs() =
          output.outputs(next++).logprobs();
    for (std::size_t i = 0; order_.exact_log_probs && i < order_.starts.size(); ++i) {
      const auto& logprobs = output.outputs(next++).logprobs();
      const auto prompt = static_cast<int>(order_.starts[i].prompt.size());
      sample.mutable_sequences(static_cast<int>(i))
          ->mutable_exact_logprobs()
          ->Add(logprobs.begin() + prompt - 1, logprobs.end());
    }
  });
}

}  // namespace meshloom::control
