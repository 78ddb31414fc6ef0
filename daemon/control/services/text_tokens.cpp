// SPDX-License-Identifier: Apache-2.0
#include "daemon/control/services/text_tokens.h"

#include <algorithm>
#include <string>
#include <vector>

#include "daemon/base/field_error.h"
#include "daemon/control/host/hold.h"
#include "daemon/text/tokenizer.h"
#include "daemon/text/utf8.h"
#include "daemon/train/config/chat_prompt.h"
#include "daemon/train/config/sampling_params.h"

namespace meshloom::control {
namespace {

constexpr std::size_t kMostText = std::size_t{1} << 20;  // bytes
constexpr int kMostTokens = 262'144;

/// What has the text of a model, kept from being removed meanwhile.
struct TextModel {
  Hold hold;
  train::PromptLimits limits;
};

TextModel open_model(const v1::TokenizerSource& source, ModelFolders& folders,
                     Tokenization& tokenization) {
  v1::RunConfig config;
  *config.mutable_model() = source.model();
  config.mutable_data()->set_tokenizer(source.tokenizer());
  // Limits are those of resolved configs. No text hangs on the dtype.
  config.mutable_plan()->set_dtype("float32");
  TextModel model{folders.hold_models(config), tokenization.prompt_limits(config)};
  if (source.tokenizer() == "bytes" && !model.limits.is_bytes())
    base::refuse_field("source.tokenizer", "\"bytes\" is for models of 256 tokens, this one has {}",
                       model.limits.vocab_size);
  if (model.limits.has_text()) return model;
  const std::string& why = model.limits.no_tokenizer;
  throw Unimplemented(
      fmt::format("source.model: the model's vocabulary has {} tokens and it has no tokenizer{}{}, "
                  "so that its tokens have no text",
                  model.limits.vocab_size, why.empty() ? "" : " that is known: ", why),
      "TOKENIZER_NEEDED",
      {{"field", "source.model"}, {"vocab_size", std::to_string(model.limits.vocab_size)}});
}

[[noreturn]] void refuse_length(const std::string& field, const std::string& what) {
  throw ResourceExhausted(
      fmt::format("{}: {}: give it in parts, or \"data tokenize\" a file", field, what),
      "TEXT_TOO_LONG", {{"field", field}});
}

std::string text_of_bytes(const v1::DecodeTokensRequest& request) {
  std::string bytes;
  for (const std::int64_t token : request.token_ids()) bytes.push_back(static_cast<char>(token));
  return bytes;
}

void check_tokens(const v1::DecodeTokensRequest& request, const train::PromptLimits& limits) {
  if (request.token_ids_size() > kMostTokens)
    refuse_length("token_ids",
                  fmt::format("{} tokens are more than {}", request.token_ids_size(), kMostTokens));
  const std::int64_t end =
      std::max<std::int64_t>(limits.vocab_size, limits.tokenizer ? limits.tokenizer->end() : 0);
  for (int i = 0; i < request.token_ids_size(); ++i)
    if (request.token_ids(i) < 0 || request.token_ids(i) >= end)
      base::refuse_field(fmt::format("token_ids[{}]", i), "{} is outside the vocabulary of {}",
                         request.token_ids(i), end);
}

}  // namespace

v1::EncodeTextResponse encode_text(const v1::EncodeTextRequest& request, ModelFolders& folders,
                                   Tokenization& tokenization, const CallHost::GoOn& go_on) {
  const std::string& text = request.prompt().prompt();
  if (text.size() > kMostText)
    refuse_length("prompt.prompt",
                  fmt::format("{} bytes are more than {}", text.size(), kMostText));
  if (request.prompt().token_ids_size() > 0)
    base::refuse_field("prompt.token_ids", "are tokens already, expected a text");
  if (request.prompt().has_chat() && !text.empty())
    base::refuse_field("prompt.chat", "is beside a text, of which one is expected");
  const TextModel model = open_model(request.source(), folders, tokenization);
  v1::EncodeTextResponse response;
  if (request.prompt().has_chat()) {
    train::ChatPrompt chat =
        train::chat_prompt(request.prompt().chat(), model.limits, "prompt.", go_on);
    for (const std::int64_t token : chat.tokens)
      response.add_token_ids(static_cast<std::int32_t>(token));
    response.set_rendered(std::move(chat.text));
    return response;
  }
  if (!model.limits.tokenizer) {
    for (const char c : text) response.add_token_ids(static_cast<unsigned char>(c));
    return response;
  }
  const bool around = !request.has_add_special_tokens() || request.add_special_tokens();
  const std::vector<text::TokenId> tokens = base::with_field(
      "prompt.prompt", [&] { return model.limits.tokenizer->encode(text, around, go_on); });
  response.mutable_token_ids()->Add(tokens.begin(), tokens.end());
  return response;
}

v1::DecodeTokensResponse decode_tokens(const v1::DecodeTokensRequest& request,
                                       ModelFolders& folders, Tokenization& tokenization,
                                       const CallHost::GoOn& go_on) {
  const TextModel model = open_model(request.source(), folders, tokenization);
  check_tokens(request, model.limits);
  v1::DecodeTokensResponse response;
  std::string text;
  if (model.limits.tokenizer) {
    const std::vector<text::TokenId> tokens(request.token_ids().begin(), request.token_ids().end());
    text::Budget budget(go_on);
    text = base::with_field("token_ids", [&] {
      return model.limits.tokenizer->decode(tokens, request.skip_special_tokens(), budget);
    });
  } else {
    text = text_of_bytes(request);
  }
  if (text.size() > 2 * kMostText)
    refuse_length("token_ids",
                  fmt::format("{} bytes of text are more than {}", text.size(), 2 * kMostText));
  std::string storage;
  response.set_text(std::string(text::valid_utf8(text, storage)));
  return response;
}

}  // namespace meshloom::control
