// SPDX-License-Identifier: Apache-2.0
#include "daemon/control/jobs/job_samples.h"

#include <optional>
#include <span>
#include <utility>

#include "daemon/base/enum_names.h"
#include "daemon/base/utf8.h"
#include "daemon/control/jobs/sample_scheduler.h"
#include "daemon/control/jobs/token_text.h"
#include "daemon/control/stores/job_entry.h"
#include "daemon/train/config/chat_prompt.h"
#include "daemon/train/config/sampling_params.h"

namespace meshloom::control {
namespace {

constexpr std::int64_t kJobSample = 0;  // no number of the scheduler's

/// What has been drawn of one sequence. Where its tokenizer takes too much to make text of tokens
/// it has none, as that of a model without one: a job goes on.
class Sequence {
 public:
  Sequence(const train::PromptLimits& limits, std::span<const std::int64_t> prompt,
           std::string prompt_text)
      : text_(std::move(prompt_text)), has_text_(limits.has_text()) {
    decode([&] {
      decoder_.emplace(limits, prompt);
      return "";
    });
  }

  void add(const v1::SampledToken& token) {
    decode([&] { return decoder_->add(token.token_id()); });
    ids_ += fmt::format("{}{}", ids_.empty() ? "" : " ", token.token_id());
    finish_ = token.finish_reason();
  }
  /// Once nothing is added any more: the text, or the ids of tokens without one.
  std::string finished() {
    decode([&] { return decoder_->finish(); });
    return has_text_ ? text_ : ids_;
  }
  v1::FinishReason finish() const { return finish_; }

 private:
  template <typename Decode>
  void decode(Decode&& decode) {
    if (!has_text_) return;
    try {
      text_ += decode();
    } catch (const ResourceExhausted&) {
      has_text_ = false;
    }
  }

  std::optional<TokenText> decoder_;
  std::string text_, ids_;
  v1::FinishReason finish_ = v1::FINISH_REASON_UNSPECIFIED;
  bool has_text_;
};

}  // namespace

JobSamples::JobSamples(const RunClient& run, const v1::SampleConfig& config,
                       train::PromptLimits limits)
    : run_(run), config_(config), limits_(std::move(limits)) {
  const auto add = [&](const std::string& prompt, std::vector<std::int64_t> tokens,
                       std::vector<std::int64_t> turn_ends = {}) {
    prompts_.push_back(prompt);
    starts_.push_back({std::move(tokens), config_.params()});
    starts_.back().turn_ends = std::move(turn_ends);
    train::set_ends({}, limits_, &starts_.back());
  };
  if (config_.chat()) {
    for (const auto& [prompt, field] : train::user_prompts(config_)) {
      train::ChatPrompt chat = train::user_prompt(prompt, limits_, field);
      add(chat.text, std::move(chat.tokens), std::move(chat.turn_ends));
    }
    return;
  }
  if (!config_.prompt().empty() || !config_.token_ids().empty())
    add(config_.prompt(),
        train::prompt_tokens(config_.prompt(), config_.token_ids(), limits_, "run.sample."));
  for (const std::string& prompt : config_.prompts())
    add(prompt, train::text_prompt_tokens(prompt, limits_, "run.sample.prompts"));
}

JobSamples::Drawn JobSamples::draw(std::int64_t step, const std::function<bool()>& given_up) const {
  run_.begin_sample(kJobSample, {}, starts_).get();
  std::vector<Sequence> sequences;
  for (std::size_t i = 0; i < prompts_.size(); ++i)
    sequences.emplace_back(limits_, starts_[i].prompt, prompts_[i]);
  Drawn drawn;
  bool done = false;
  while (!done && !given_up()) {
    const v1::AdvanceSampleResult slice = run_.advance_sample(kJobSample, kSampleSlice).get();
    for (const v1::SampledToken& token : slice.tokens())
      sequences.at(static_cast<std::size_t>(token.sequence())).add(token);
    done = slice.done();
  }
  run_.end_sample(kJobSample).get();
  drawn.whole = done;
  for (std::size_t i = 0; i < sequences.size(); ++i) {
    Sequence& of = sequences[i];
    v1::DrawnSample sample;
    sample.set_step(step);
    sample.set_prompt(prompts_[i]);
    std::string text = of.finished();
    const std::size_t kept = base::utf8_cut(text, kMostSampleBytes / sequences.size());
    drawn.cut = drawn.cut || kept < text.size();
    text.resize(kept);
    sample.set_text(std::move(text));
    if (of.finish() != v1::FINISH_REASON_UNSPECIFIED)
      sample.set_finish_reason(
          base::enum_spelling(*v1::FinishReason_descriptor()->FindValueByNumber(of.finish())));
    drawn.samples.push_back(std::move(sample));
  }
  return drawn;
}

}  // namespace meshloom::control
