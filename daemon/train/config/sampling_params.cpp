// SPDX-License-Identifier: Apache-2.0
#include "daemon/train/config/sampling_params.h"

#include <algorithm>
#include <cmath>

#include "daemon/base/field_error.h"
#include "daemon/base/given_number.h"
#include "daemon/base/input_file.h"
#include "daemon/base/utf8.h"
#include "daemon/nn/kv_cache.h"
#include "daemon/train/config/chat_prompt.h"
#include "daemon/train/config/dtype_choice.h"
#include "daemon/train/config/sample_start.h"

namespace meshloom::train {
namespace {

constexpr int kDefaultTokens = 256;
constexpr int kMostStops = 64;  // of a kind
constexpr std::size_t kLongestStop = 1024;
/// Bytes of a prompt for each token of the context, and for all of a small one: a token of text has
/// four or five of them, of a table of numbers or a program with much indentation up to ten.
constexpr std::size_t kPromptBytesOfToken = 16, kPromptBytes = 1024;

/// Of one position: a key and a value of each layer.
void set_cache_bytes(const nn::ModelConfig& config, std::int64_t kv_heads, DType dtype,
                     PromptLimits& limits) {
  const std::int64_t layer =
      2 * kv_heads * config.head_dim * static_cast<std::int64_t>(dtype_size(dtype));
  limits.window_cache_bytes = config.windowed_layer_count() * layer;
  limits.cache_bytes = config.num_layers * layer - limits.window_cache_bytes;
}

/// Whether the folder's tokenizer is the one that exports of models of bytes have.
bool has_byte_tokenizer(const std::filesystem::path& folder) {
  const std::filesystem::path path = folder / "tokenizer.json";
  const std::string bytes = byte_tokenizer_json();
  std::error_code error;
  return std::filesystem::file_size(path, error) == bytes.size() && !error &&
         base::InputFile(path).read_text(bytes.size()) == bytes;
}

void check_generates(const PromptLimits& limits, const std::string& field) {
  if (limits.context_length == 0)
    throw Unimplemented(fmt::format("{}: the model does not generate: it is not causal", field),
                        "NOT_CAUSAL", {{"field", field}});
}

/// Before it is encoded.
void check_prompt_bytes(std::size_t bytes, const PromptLimits& limits, const std::string& field) {
  const auto most =
      kPromptBytes + kPromptBytesOfToken * static_cast<std::size_t>(limits.context_length);
  if (bytes > most)
    throw InvalidArgument(
        fmt::format("{}: {} bytes are more than the {} that are encoded for the model's context of "
                    "{} tokens",
                    field, bytes, most, limits.context_length),
        "PROMPT_TOO_LONG", {{"field", field}});
}

std::vector<text::TokenId> encoded(const std::string& text, bool with_template,
                                   const PromptLimits& limits, const std::string& field,
                                   const text::StopCheck& stop) {
  check_prompt_bytes(text.size(), limits, field);
  try {
    return limits.tokenizer->encode(text, with_template, stop);
  } catch (const ResourceExhausted& error) {
    base::throw_with_field(error, field);
  }
}

[[noreturn]] void refuse_text(const PromptLimits& limits, const std::string& field) {
  if (limits.tokenizer_is_refused)
    throw ResourceExhausted(fmt::format("{}: {}", field, limits.no_tokenizer), "TOKENIZER_LIMIT",
                            {{"field", field}});
  throw Unimplemented(
      fmt::format("{}: the model's vocabulary has {} tokens and it has no tokenizer{}{}: give "
                  "token_ids instead of text (\"meshloom generate --tokenizer\" makes them)",
                  field, limits.vocab_size,
                  limits.no_tokenizer.empty() ? "" : " that is known: ", limits.no_tokenizer),
      "TOKENIZER_NEEDED", {{"field", field}, {"vocab_size", std::to_string(limits.vocab_size)}});
}

void check_prompt(const std::vector<std::int64_t>& tokens, const PromptLimits& limits,
                  const std::string& field) {
  const auto length = static_cast<std::int64_t>(tokens.size());
  if (length > limits.context_length)
    throw InvalidArgument(fmt::format("{}: {} tokens are more than the model's context of {}",
                                      field, length, limits.context_length),
                          "PROMPT_TOO_LONG", {{"field", field}});
  for (const std::int64_t token : tokens)
    if (token < 0 || token >= limits.vocab_size)
      throw InvalidArgument(fmt::format("{}: token id {} is outside the model's vocabulary of {}",
                                        field, token, limits.vocab_size),
                            "TOKEN_OUT_OF_RANGE", {{"field", field}});
}

/// What is wrong with the tokenizer is kept for whoever gives text.
void add_tokenizer_alone(PromptLimits& limits, const std::filesystem::path& folder,
                         text::TokenizerCache& opened, const text::StopCheck& stop) {
  try {
    if (limits.vocab_size == kByteVocabulary && has_byte_tokenizer(folder)) return;
    const text::FolderTokenizer found = opened.open(folder, stop);
    limits.tokenizer = found.tokenizer;
    limits.named_tokens = found.named;
  } catch (const Error& error) {
    const ErrorKind kind = error.kind();
    if (kind == ErrorKind::kCancelled || kind == ErrorKind::kUnavailable ||
        kind == ErrorKind::kDeadlineExceeded)
      throw;
    limits.no_tokenizer = error.what();
    limits.tokenizer_is_refused = kind == ErrorKind::kResourceExhausted;
  }
}

}  // namespace

void resolve_sampling_params(v1::SamplingParams& params, const std::string& where) {
  base::check_given_positive(where + ".max_tokens", params.has_max_tokens(), params.max_tokens(),
                             std::to_string(kDefaultTokens));
  if (!params.has_max_tokens()) params.set_max_tokens(kDefaultTokens);
  if (!params.has_temperature()) params.set_temperature(1.0);
  if (!std::isfinite(params.temperature()) || params.temperature() < 0)
    base::refuse_field(where + ".temperature", "{} is not a number of 0 or more",
                       params.temperature());
  if (!params.has_top_p()) params.set_top_p(1.0);
  if (!(params.top_p() > 0 && params.top_p() <= 1))
    base::refuse_field(where + ".top_p", "{} is not above 0 and at most 1", params.top_p());
  if (params.top_k() < 0) base::refuse_field(where + ".top_k", "{} is negative", params.top_k());
}

PromptLimits prompt_limits(const nn::ModelConfig& config) {
  const bool generates = config.is_causal();
  PromptLimits limits{config.vocab_size, generates ? config.context_length() : 0};
  set_cache_bytes(config, config.num_kv_heads, DType::kFloat32, limits);
  limits.window_positions =
      nn::KvCache::kept_positions(config.sliding_window, config.context_length());
  for (const auto& id : {config.bos_token_id, config.eos_token_id})
    if (!limits.beginning && id && *id >= 0 && *id < config.vocab_size) limits.beginning = id;
  return limits;
}

std::int64_t PromptLimits::sequence_cache_bytes(std::int64_t tokens) const {
  const std::int64_t positions = std::min(context_length, tokens);
  return positions * cache_bytes + std::min(positions, window_positions) * window_cache_bytes;
}

PromptLimits prompt_limits(const nn::ModelConfig& config, const v1::RunConfig& resolved) {
  PromptLimits limits = prompt_limits(config);
  // If there are more ranks than heads of keys and values, each rank has one.
  const std::int64_t heads = std::max<std::int64_t>(config.num_kv_heads, resolved.mesh().tp());
  set_cache_bytes(config, heads, dtype_of(resolved.plan()), limits);
  limits.cache_copies = std::max(resolved.mesh().fsdp(), 1);
  limits.cache_shards = std::max(resolved.mesh().tp(), 1) * std::max(resolved.mesh().cp(), 1);
  limits.device = resolved.device();
  return limits;
}

void add_tokenizer(PromptLimits& limits, const std::filesystem::path& folder,
                   text::TokenizerCache& opened, const text::StopCheck& stop) {
  if (folder.empty() || !text::has_tokenizer(folder)) return;
  add_tokenizer_alone(limits, folder, opened, stop);
  add_chat(limits, folder, limits.named_tokens, stop);
}

std::vector<std::int64_t> beginning_tokens(const PromptLimits& limits, const std::string& where,
                                           std::string* name) {
  google::protobuf::RepeatedField<std::int64_t> ids;
  std::string called;
  if (limits.tokenizer)
    for (const text::TokenId id : limits.tokenizer->around().before) ids.Add(id);
  if (!ids.empty()) {
    called = "the tokens that its tokenizer puts in front of a text";
  } else if (limits.beginning) {
    ids.Add(*limits.beginning);
    called = fmt::format("token {}, the beginning of a text by config.json", *limits.beginning);
  } else if (limits.is_bytes()) {
    ids.Add('\n');
    called = "a line end";
  } else {
    base::refuse_field(where + "prompt",
                       "is needed: the model's files name no token that a text begins with "
                       "(bos_token_id, eos_token_id); give a prompt or token_ids");
  }
  if (name) *name = called;
  return prompt_tokens("", ids, limits, where);
}

std::vector<std::int64_t> prompt_tokens(const std::string& text,
                                        const google::protobuf::RepeatedField<std::int64_t>& ids,
                                        const PromptLimits& limits, const std::string& where,
                                        const text::StopCheck& stop) {
  const std::string field = where + (ids.empty() ? "prompt" : "token_ids");
  check_generates(limits, field);
  if (text.empty() == ids.empty())
    base::refuse_field(where + "prompt", "give either a prompt or token_ids");
  if (!text.empty()) return text_prompt_tokens(text, limits, field, stop);
  std::vector<std::int64_t> tokens(ids.begin(), ids.end());
  check_prompt(tokens, limits, field);
  return tokens;
}

namespace {

std::vector<std::int64_t> tokens_of_text(const std::string& text, bool with_template,
                                         const PromptLimits& limits, const std::string& field,
                                         const text::StopCheck& stop) {
  check_generates(limits, field);
  if (text.empty()) base::refuse_field(field, "is empty");
  if (!limits.has_text()) refuse_text(limits, field);
  std::vector<std::int64_t> tokens;
  if (limits.tokenizer)
    for (const text::TokenId token : encoded(text, with_template, limits, field, stop))
      tokens.push_back(token);
  else
    for (const char c : text) tokens.push_back(static_cast<unsigned char>(c));
  if (tokens.empty()) base::refuse_field(field, "the tokenizer makes no token of it");
  check_prompt(tokens, limits, field);
  return tokens;
}

}  // namespace

std::vector<std::int64_t> text_prompt_tokens(const std::string& text, const PromptLimits& limits,
                                             const std::string& field,
                                             const text::StopCheck& stop) {
  return tokens_of_text(text, true, limits, field, stop);
}

std::vector<std::int64_t> rendered_prompt_tokens(const std::string& text,
                                                 const PromptLimits& limits,
                                                 const std::string& field,
                                                 const text::StopCheck& stop) {
  return tokens_of_text(text, false, limits, field, stop);
}

void check_sample_stop(const v1::SampleStop& stop, const PromptLimits& limits,
                       const std::string& where) {
  const int given = std::max(stop.token_ids_size(), stop.strings_size());
  if (given > kMostStops)
    base::refuse_field(where, "has {} token ids or strings, at most {} are looked for", given,
                       kMostStops);
  for (int i = 0; i < stop.token_ids_size(); ++i)
    if (stop.token_ids(i) < 0 || stop.token_ids(i) >= limits.vocab_size)
      base::refuse_field(fmt::format("{}.token_ids[{}]", where, i),
                         "{} is outside the model's vocabulary of {}", stop.token_ids(i),
                         limits.vocab_size);
  if (stop.strings_size() > 0 && !limits.has_text())
    throw Unimplemented(
        fmt::format("{}.strings: the model has {} tokens and no tokenizer that is known, so that "
                    "it has no text: give token_ids",
                    where, limits.vocab_size),
        "TOKENIZER_NEEDED", {{"field", where + ".strings"}});
  for (int i = 0; i < stop.strings_size(); ++i) {
    const std::string field = fmt::format("{}.strings[{}]", where, i);
    if (stop.strings(i).empty() || stop.strings(i).size() > kLongestStop)
      base::refuse_field(field, "has {} bytes, expected 1 to {}", stop.strings(i).size(),
                         kLongestStop);
    if (limits.tokenizer && !base::is_utf8(stop.strings(i)))
      base::refuse_field(field, "\"{}\" is not UTF-8, which no text of the model's tokenizer holds",
                         base::printable_text(stop.strings(i)));
  }
}

void set_ends(const v1::SampleStop& stop, const PromptLimits& limits, SampleStart* start) {
  start->stop = stop;
  if (!limits.is_bytes()) start->stop.clear_strings();
  start->end_tokens.clear();
  if (!stop.ignore_eos())
    for (const std::int64_t end : start->turn_ends) start->stop.add_token_ids(end);
  if (stop.ignore_eos() || !limits.generation.end_tokens) return;
  start->end_tokens = *limits.generation.end_tokens;
  start->stop.set_ignore_eos(true);  // the config's own do not count then
}

}  // namespace meshloom::train
