// SPDX-License-Identifier: Apache-2.0
// What a request or a job gives to sample with: how tokens are drawn, and which are continued.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "daemon/nn/models/model_config.h"
#include "daemon/text/tokenizer_cache.h"
#include "daemon/train/config/generation_config.h"
#include "daemon/train/config/sample_start.h"
#include "daemon/train/files/hf_byte_tokenizer.h"
#include "v1/config.pb.h"
#include "v1/step.pb.h"

namespace meshloom::train {

struct SampleStart;
struct ChatOfModel;

/// Fills in the defaults and checks the rest. Throws InvalidArgument with the field: `where` and
/// the parameter's name ("run.sample.params.top_p").
void resolve_sampling_params(v1::SamplingParams& params, const std::string& where);

/// A model can continue prompts within these limits.
struct PromptLimits {
  std::int64_t vocab_size = 0;      ///< 256: bytes
  std::int64_t context_length = 0;  ///< tokens of the longest prompt; 0: it does not generate
  /// Keys and values of one position of a sequence, in bytes, over the ranks that share heads (tp)
  /// and positions (cp). Layers with a window have theirs in window_cache_bytes.
  std::int64_t cache_bytes = 0;
  int cache_copies = 1;  ///< how often they are held: by each of the ranks of fsdp
  int cache_shards = 1;  ///< ranks that share one copy
  std::int64_t window_cache_bytes = 0;
  std::int64_t window_positions = 0;  ///< that layers with a window keep
  /// Makes text tokens and tokens text. Null: its tokens are bytes if there are 256, else the model
  /// takes and gives token ids alone; `no_tokenizer` may say why.
  std::shared_ptr<const text::Tokenizer> tokenizer = nullptr;
  std::string no_tokenizer = {};
  bool tokenizer_is_refused = false;  ///< it is known, and larger than any of use (TOKENIZER_LIMIT)
  /// It renders conversations (chat_prompt.h). Null: nothing does; `no_chat` may say why.
  std::shared_ptr<const ChatOfModel> chat = nullptr;
  std::string no_chat = {};
  text::NamedTokens named_tokens = {};  ///< of the tokenizer, which a template may speak of
  /// The model's folder says here what its sequences end with, and what a request to generate
  /// leaves out.
  GenerationConfig generation = {};
  /// A text of the model begins with this token: its bos, else its eos; nothing where it names
  /// neither.
  std::optional<std::int64_t> beginning = std::nullopt;
  /// run.device of the run's resolved config, where its keys and values are; empty: on the host.
  std::string device = {};
  /// Whoever draws from the model's folder is told these notes on its weights and config.json.
  std::vector<std::string> notes = {};

  /// Returns the bytes of keys and values of a sequence of so many tokens.
  std::int64_t sequence_cache_bytes(std::int64_t tokens) const;
  bool is_bytes() const {
    return tokenizer == nullptr && no_tokenizer.empty() && vocab_size == kByteVocabulary;
  }
  bool has_text() const { return tokenizer != nullptr || is_bytes(); }
};
/// Returns the limits of a model in float32 on one rank.
PromptLimits prompt_limits(const nn::ModelConfig& config);
/// Returns the limits of a run, whose dtype, mesh and device `resolved` gives.
PromptLimits prompt_limits(const nn::ModelConfig& config, const v1::RunConfig& resolved);

/// Adds the chat template of a folder, and its tokenizer, unless the folder (it may be empty) has
/// none, or it is that of a model of bytes. A tokenizer that cannot be read is no error before
/// somebody gives text. Throws what `stop` throws.
void add_tokenizer(PromptLimits& limits, const std::filesystem::path& folder,
                   text::TokenizerCache& opened, const text::StopCheck& stop = {});

/// Returns the tokens to continue, which are given as ids, or as text for a model of bytes or with
/// a tokenizer, whose template's tokens stand around it. Everything that the model refuses is
/// refused here. Throws with the field: `where` and "prompt" or "token_ids". A text of many times
/// the bytes of a context (PROMPT_TOO_LONG) is not encoded. ResourceExhausted (TOKENIZER_LIMIT)
/// where text or tokenizer are such as to take time or memory without end, and what `stop` throws.
std::vector<std::int64_t> prompt_tokens(const std::string& text,
                                        const google::protobuf::RepeatedField<std::int64_t>& ids,
                                        const PromptLimits& limits, const std::string& where = {},
                                        const text::StopCheck& stop = {});
/// Returns the tokens of text alone as prompt_tokens does; its field is `field`.
std::vector<std::int64_t> text_prompt_tokens(const std::string& text, const PromptLimits& limits,
                                             const std::string& field,
                                             const text::StopCheck& stop = {});
/// Returns, as text_prompt_tokens does, the tokens of text that spells out all its special tokens:
/// none stand around it.
std::vector<std::int64_t> rendered_prompt_tokens(const std::string& text,
                                                 const PromptLimits& limits,
                                                 const std::string& field,
                                                 const text::StopCheck& stop = {});
/// Returns the tokens that a sequence without a prompt begins with: the tokens in front of a text
/// by the tokenizer's template, else `beginning`, else of bytes a line end. `name`, unless it is
/// null, becomes its name for a note. Throws InvalidArgument for a model that has none of them.
std::vector<std::int64_t> beginning_tokens(const PromptLimits& limits, const std::string& where,
                                           std::string* name = nullptr);

/// Throws with the field, `where` and ".token_ids[2]" or ".strings[0]": InvalidArgument for ids
/// outside the vocabulary, strings that are empty or, for a model with a tokenizer, no UTF-8, and
/// more of them than are looked for; Unimplemented (TOKENIZER_NEEDED) for strings of a model that
/// has no text.
void check_sample_stop(const v1::SampleStop& stop, const PromptLimits& limits,
                       const std::string& where);

/// Gives a sequence what ends it and can be told by tokens as they are drawn: `stop`, the ends of
/// its turn, and the end tokens that the model's generation_config.json names in place of those of
/// its config. Strings are told by tokens of models of bytes; of those with a tokenizer they are
/// looked for in the text.
void set_ends(const v1::SampleStop& stop, const PromptLimits& limits, SampleStart* start);

}  // namespace meshloom::train
