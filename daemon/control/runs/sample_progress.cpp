// SPDX-License-Identifier: Apache-2.0
#include "daemon/control/runs/sample_progress.h"

#include <algorithm>

#include "daemon/base/enum_names.h"

namespace meshloom::control {
namespace {

template <typename Field>
void copy_range(const Field& from, int first, int last, Field* to) {
  to->Add(from.begin() + std::min(first, from.size()), from.begin() + std::min(last, from.size()));
}

}  // namespace

SampleProgress::SampleProgress(const Shape& shape)
    : shape_(shape), result_(std::make_shared<v1::VerbResult>()) {
  for (int i = 0; i < sequences(); ++i) {
    v1::SampledSequence& sequence = *result_->mutable_sample()->add_sequences();
    sequence.set_prompt(i / shape_.samples);
    sequence.set_seed(shape_.seeds[static_cast<std::size_t>(i)]);
    if (shape_.tokenizer || shape_.text) sequence.set_text("");
  }
  if (shape_.tokenizer)
    decoders_.assign(shape_.seeds.size(), text::StreamDecoder(shape_.tokenizer, true));
  if (shape_.tokenizer || shape_.text) {
    stops_.assign(shape_.seeds.size(), text::StopStrings(shape_.stop_strings));
    texts_.resize(stops_.size());
  }
  for (int i = 0; shape_.prompts && i < sequences(); i += shape_.samples)
    result_->mutable_sample()->add_prompts();
}

void SampleProgress::follow(std::size_t sequence, std::span<const std::int64_t> prompt) {
  const std::lock_guard lock(mutex_);
  if (shape_.tokenizer) decoders_.at(sequence).follow(prompt);
}

bool SampleProgress::add(const DrawnToken& token) {
  const std::lock_guard lock(mutex_);
  const bool has_text = !texts_.empty();
  if (has_text && stops_[token.sequence].stopped()) return false;
  v1::SampledSequence& sequence =
      *result_->mutable_sample()->mutable_sequences(static_cast<int>(token.sequence));
  if (sequence.token_ids().empty()) sequence.set_first_weights_step(token.weights_step);
  sequence.set_weights_step(token.weights_step);
  sequence.add_token_ids(static_cast<std::int32_t>(token.id));
  sequence.add_logprobs(token.log_prob);
  if (shape_.tempered) sequence.add_tempered_logprobs(token.tempered_log_prob);
  if (has_text) {
    texts_[token.sequence].push_back(text_of(token));
    sequence.mutable_text()->append(texts_[token.sequence].back());
  }
  v1::FinishReason finish = token.finish;
  // As with what the ranks look for, a stop counts before the length and a full context, and behind
  // an end of text.
  if (has_text && stops_[token.sequence].stopped() &&
      (!token.last() || finish == v1::FINISH_REASON_LENGTH || finish == v1::FINISH_REASON_CONTEXT))
    finish = v1::FINISH_REASON_STOP_STRING;
  // Stays empty while the sequence goes on.
  if (finish != v1::FINISH_REASON_UNSPECIFIED)
    sequence.set_finish_reason(
        base::enum_spelling(*v1::FinishReason_descriptor()->FindValueByNumber(finish)));
  return true;
}

std::string SampleProgress::text_of(const DrawnToken& token) {
  text::StopStrings& stops = stops_[token.sequence];
  std::string whole;
  if (shape_.tokenizer) {
    text::StreamDecoder& decoder = decoders_[token.sequence];
    whole = decoder.add(static_cast<text::TokenId>(token.id));
    if (token.last()) whole += decoder.finish();
  } else {
    whole.push_back(static_cast<char>(token.id));
  }
  std::string told = stops.add(whole);
  if (token.last()) told += stops.finish();
  return told;
}

bool SampleProgress::stopped(std::size_t sequence) const {
  const std::lock_guard lock(mutex_);
  return !stops_.empty() && stops_[sequence].stopped();
}

std::optional<v1::SampledTokens> SampleProgress::after(int sequence, int known) const {
  const std::lock_guard lock(mutex_);
  const v1::SampledSequence& drawn = result_->sample().sequences(sequence);
  const int size = drawn.token_ids_size();
  if (known >= size) return std::nullopt;
  const int last = known + std::min(size - known, kMostTold);
  v1::SampledTokens told;
  told.set_sequence(sequence);
  told.set_first(known);
  copy_range(drawn.token_ids(), known, last, told.mutable_token_ids());
  copy_range(drawn.logprobs(), known, last, told.mutable_logprobs());
  copy_range(drawn.tempered_logprobs(), known, last, told.mutable_tempered_logprobs());
  for (int i = known; !texts_.empty() && i < last; ++i)
    *told.mutable_text() += texts_[static_cast<std::size_t>(sequence)][static_cast<std::size_t>(i)];
  if (last == drawn.token_ids_size()) told.set_finish_reason(drawn.finish_reason());
  return told;
}

}  // namespace meshloom::control
