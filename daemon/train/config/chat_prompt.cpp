// SPDX-License-Identifier: Apache-2.0
#include "daemon/train/config/chat_prompt.h"

#include <algorithm>

#include "daemon/base/field_error.h"
#include "daemon/text/chat_renderer.h"
#include "daemon/text/conversation.h"
#include "daemon/train/data/chat_data.h"
#include "kernels/base/error.h"

namespace meshloom::train {
namespace {

constexpr const char* kTemplateField = "run.data.chat.template";

/// A template that cannot be read is no error before somebody gives a conversation.
template <typename Body>
void note_unread(PromptLimits& limits, Body&& body) {
  try {
    body();
  } catch (const Error& error) {
    const ErrorKind kind = error.kind();
    if (kind == ErrorKind::kCancelled || kind == ErrorKind::kUnavailable ||
        kind == ErrorKind::kDeadlineExceeded)
      throw;
    limits.chat = nullptr;
    limits.no_chat = error.what();
  }
}

bool is_special(const text::Tokenizer& tokenizer, text::TokenId token) {
  const std::vector<text::TokenId> one = {token};
  return tokenizer.decode(one, true).empty() && !tokenizer.decode(one, false).empty();
}

/// The first special token behind an answer, unless there is text before it.
std::vector<std::int64_t> turn_ends(const text::ChatRenderer& renderer, const PromptLimits& limits,
                                    const text::StopCheck& stop) {
  if (!limits.tokenizer) return {};
  const std::string behind = renderer.behind_answer(stop);
  for (const text::TokenId token : limits.tokenizer->encode(behind, false, stop)) {
    if (is_special(*limits.tokenizer, token)) return {token};
    const std::vector<text::TokenId> one = {token};
    const std::string text = limits.tokenizer->decode(one, false);
    if (text.find_first_not_of(" \t\r\n") != std::string::npos) break;
  }
  return {};
}

nlohmann::json messages_of(const v1::Conversation& chat) {
  nlohmann::json messages = nlohmann::json::array();
  for (const v1::ChatMessage& message : chat.messages())
    messages.push_back({{"role", message.role()}, {"content", message.content()}});
  return messages;
}

ChatPrompt rendered(const nlohmann::ordered_json& messages, const PromptLimits& limits,
                    const std::string& field, const text::StopCheck& stop) {
  if (!limits.chat)
    throw FailedPrecondition(
        fmt::format("{}: the model has no chat template: {}", field,
                    limits.no_chat.empty()
                        ? "its folder names none (chat_template.jinja, or chat_template in "
                          "tokenizer_config.json)"
                        : limits.no_chat),
        "NO_CHAT_TEMPLATE", {{"field", field}});
  return base::with_field(field, [&] {
    const text::ChatRenderer renderer(limits.chat->source, limits.chat->named, seconds_now());
    ChatPrompt prompt;
    prompt.text = renderer.render_prompt(messages, stop);
    prompt.tokens = rendered_prompt_tokens(prompt.text, limits, field, stop);
    prompt.turn_ends = turn_ends(renderer, limits, stop);
    return prompt;
  });
}

}  // namespace

void add_chat(PromptLimits& limits, const std::filesystem::path& folder,
              const text::NamedTokens& named, const text::StopCheck& stop) {
  note_unread(limits, [&] {
    if (auto source = text::find_chat_template(folder, "default", stop))
      limits.chat = std::make_shared<const ChatOfModel>(ChatOfModel{std::move(*source), named});
  });
}

void set_chat_of_job(PromptLimits& limits, const v1::DataConfig& data,
                     const std::filesystem::path& tokenizer,
                     const std::filesystem::path& data_dir) {
  if (data.chat().template_().empty()) return;
  auto source = find_chat_source(data.chat(), tokenizer, data_dir, kTemplateField);
  limits.chat = nullptr;
  if (source)
    limits.chat =
        std::make_shared<const ChatOfModel>(ChatOfModel{std::move(*source), limits.named_tokens});
  else
    limits.no_chat = fmt::format("{} of its job is {}", kTemplateField, data.chat().template_());
}

void add_chat_of_job(PromptLimits& limits, const v1::DataConfig& data,
                     const std::filesystem::path& tokenizer,
                     const std::filesystem::path& data_dir) {
  note_unread(limits, [&] { set_chat_of_job(limits, data, tokenizer, data_dir); });
}

void carry_chat_of_job(const v1::DataConfig& data, const std::filesystem::path& tokenizer,
                       const std::filesystem::path& data_dir, std::vector<CarriedFile>& carried) {
  if (data.chat().template_().empty()) return;
  auto source = find_chat_source(data.chat(), tokenizer, data_dir, kTemplateField);
  if (!source) return;
  constexpr const char* kName = "chat_template.jinja";
  std::erase_if(carried, [](const CarriedFile& file) { return file.name == kName; });
  carried.push_back({kName, std::move(source->text)});
}

ChatPrompt chat_prompt(const v1::Conversation& chat, const PromptLimits& limits,
                       const std::string& where, const text::StopCheck& stop) {
  const std::string field = where + "chat";
  return rendered(text::checked_messages(messages_of(chat), field + ".", {{"field", field}}),
                  limits, field, stop);
}

std::vector<std::pair<std::string, std::string>> user_prompts(const v1::SampleConfig& sample) {
  std::vector<std::pair<std::string, std::string>> prompts;
  if (!sample.prompt().empty()) prompts.emplace_back(sample.prompt(), "run.sample.prompt");
  for (int i = 0; i < sample.prompts_size(); ++i)
    prompts.emplace_back(sample.prompts(i), fmt::format("run.sample.prompts[{}]", i));
  return prompts;
}

ChatPrompt user_prompt(const std::string& text, const PromptLimits& limits,
                       const std::string& field, const text::StopCheck& stop) {
  return rendered({{{"role", "user"}, {"content", text}}}, limits, field, stop);
}

}  // namespace meshloom::train
