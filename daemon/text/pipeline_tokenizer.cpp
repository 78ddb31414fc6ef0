// SPDX-License-Identifier: Apache-2.0
#include "daemon/text/pipeline_tokenizer.h"

#include <algorithm>

#include "daemon/base/utf8.h"
#include "daemon/text/utf8.h"

namespace meshloom::text {
namespace {

/// Bytes of a token that decoding may take the budget of.
constexpr std::size_t kTokenBytes = 512;

/// As many as the model has tokens. Holes between ids do not count, but every line of a Unigram
/// model is a token, also where two have one text.
TokenId first_new_id(const TokenModel& model) {
  const Vocabulary& vocabulary = vocabulary_of(model);
  return std::holds_alternative<Unigram>(model) ? vocabulary.end()
                                                : static_cast<TokenId>(vocabulary.size());
}

std::uint32_t characters_of(std::string_view text) {
  return static_cast<std::uint32_t>(
      std::count_if(text.begin(), text.end(), [](char c) { return !base::utf8_continues(c); }));
}

}  // namespace

const Vocabulary& vocabulary_of(const TokenModel& model) {
  return std::visit([](const auto& kind) -> const Vocabulary& { return kind.vocabulary(); }, model);
}

PipelineTokenizer::PipelineTokenizer(Parts parts, Budget& budget)
    : model_(std::move(parts.model)),
      normalizer_(std::move(parts.normalizer)),
      pre_tokenizers_(std::move(parts.pre_tokenizers)),
      around_(std::move(parts.around)),
      decoder_(std::move(parts.decoder)),
      cuts_(parts.cuts),
      added_(with_ids(parts.added_tokens, vocabulary_of(model_), first_new_id(model_)), normalizer_,
             budget) {
  const Vocabulary& known = vocabulary_of(model_);
  std::uint64_t normal_bytes = 0;
  for (TokenId id = 0; id < known.end(); ++id)
    if (const std::string* token = known.token(id)) {
      budget.spend(8 + token->size() / 8, "model");
      all_tokens_.add(*token, id);
    }
  for (const AddedToken& token : added_.tokens()) {
    all_tokens_.add(token.content, token.id);
    if (token.special) special_.insert(token.id);
    if (!token.normalized || !normalizer_) continue;
    NormalText normal{token.content};
    normalizer_(normal, budget);
    if (normal.text == token.content) continue;
    normal_bytes += normal.text.size();
    budget.check_bytes(normal_bytes, "added_tokens");
    normal_forms_[token.id] = std::move(normal.text);
  }
}

std::vector<std::uint32_t> PipelineTokenizer::token_bytes() const {
  const auto* const bpe = std::get_if<Bpe>(&model_);
  if (bpe == nullptr || !(bpe->options().byte_level || bpe->options().byte_fallback)) return {};
  std::vector<std::uint32_t> bytes(static_cast<std::size_t>(end()));
  const Vocabulary& known = bpe->vocabulary();
  for (TokenId id = 0; id < known.end(); ++id)
    if (const std::string* token = known.token(id))
      bytes[static_cast<std::size_t>(id)] =
          bpe->options().byte_level ? characters_of(*token) : sentencepiece_bytes(*token);
  for (const AddedToken& token : added_.tokens())
    bytes[static_cast<std::size_t>(token.id)] =
        token.special ? 0 : static_cast<std::uint32_t>(token.content.size());
  return bytes;
}

void PipelineTokenizer::encode(std::string_view bytes, bool with_template, WordCache& cache,
                               Budget& budget, std::vector<TokenId>& out) const {
  std::string storage;
  const std::string_view text = valid_utf8(bytes, storage);
  const auto push = [&](const AddedToken& token) { out.push_back(token.id); };
  if (with_template) out.insert(out.end(), around_.before.begin(), around_.before.end());
  added_.in_raw_text().split(text, budget, push, [&](std::string_view raw) {
    NormalText normal{"", raw.data() == text.data()};
    if (normalizer_) {
      normal.text = raw;
      normalizer_(normal, budget);
      raw = normal.text;
    }
    const Budget::Hold hold(budget, normal.text.size(), "normalizer");
    added_.in_normalized_text().split(raw, budget, push, [&](std::string_view part) {
      encode_normalized({part, normal.first && part.data() == raw.data()}, cache, budget, out);
    });
  });
  if (with_template) out.insert(out.end(), around_.after.begin(), around_.after.end());
}

void PipelineTokenizer::encode_normalized(const Piece& text, WordCache& cache, Budget& budget,
                                          std::vector<TokenId>& out) const {
  if (const auto* bpe = std::get_if<Bpe>(&model_)) {
    pre_tokenizers_.split(text, budget,
                          [&](const Piece& word) { bpe->encode(word.text, cache, budget, out); });
  } else if (const auto* word_piece = std::get_if<WordPiece>(&model_)) {
    pre_tokenizers_.split(text, budget,
                          [&](const Piece& word) { word_piece->encode(word.text, budget, out); });
  } else if (const auto* word_level = std::get_if<WordLevel>(&model_)) {
    pre_tokenizers_.split(text, budget,
                          [&](const Piece& word) { word_level->encode(word.text, out); });
  } else {
    const auto& unigram = std::get<Unigram>(model_);
    pre_tokenizers_.split(text, budget,
                          [&](const Piece& word) { unigram.encode(word.text, budget, out); });
  }
}

std::string PipelineTokenizer::decode(std::span<const TokenId> tokens, bool skip_special,
                                      Budget& budget) const {
  std::vector<std::string> texts;
  texts.reserve(tokens.size());
  std::uint64_t bytes = 0;
  for (const TokenId id : tokens) {
    const std::string* token = all_tokens_.token(id);
    if (token == nullptr || (skip_special && special_.contains(id))) continue;
    if (!decoder_ && !texts.empty()) texts.emplace_back(" ");
    const auto normal = normal_forms_.find(id);
    const std::string& content = normal == normal_forms_.end() ? *token : normal->second;
    // A few tokens of many bytes may be there any number of times.
    budget.allow(std::min(content.size() + 1, kTokenBytes));
    budget.spend(1 + content.size() / 8, "decoder");
    budget.check_bytes(bytes += content.size(), "decoder");
    texts.push_back(content);
  }
  if (decoder_) decoder_(texts, budget);
  std::string all;
  for (const std::string& text : texts) all += text;
  return all;
}

}  // namespace meshloom::text
