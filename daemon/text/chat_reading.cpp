// SPDX-License-Identifier: Apache-2.0
#include "daemon/text/chat_reading.h"

#include "daemon/base/throw_kind.h"
#include "daemon/text/learned_tokens.h"
#include "kernels/base/error.h"

namespace meshloom::text {
namespace {

/// What a template or a tokenizer refuses is said of the line.
template <typename Body>
auto at_line(const LinePlace& place, Body&& body) {
  try {
    return body();
  } catch (const Error& error) {
    const ErrorKind kind = error.kind();
    const bool is_of_line = kind == ErrorKind::kInvalidArgument ||
                            kind == ErrorKind::kUnimplemented ||
                            kind == ErrorKind::kResourceExhausted;
    if (!is_of_line) throw;
    Error::Metadata metadata = error.metadata();
    metadata.merge(place.metadata());
    base::throw_kind<ErrorOf>(kind, place.text() + error.what(), error.reason(), metadata);
  }
}

void append(const ChatText& chat, const std::vector<TokenId>& tokens,
            const std::vector<TokenRange>& learnt, const Template& around,
            std::vector<TokenId>& out) {
  const bool ends_learnt = !chat.learnt.empty() && chat.learnt.back().second == chat.text.size();
  const std::size_t first = out.size();
  for (const TokenId token : around.before) out.push_back(token | kNotLearnt);
  const std::size_t begin = out.size();
  for (const TokenId token : tokens) out.push_back(token | kNotLearnt);
  for (const auto& [from, to] : learnt)
    for (std::size_t i = from; i < to; ++i) out[begin + i] &= ~kNotLearnt;
  for (const TokenId token : around.after) out.push_back(ends_learnt ? token : token | kNotLearnt);
  if (first < out.size()) out[first] |= kBeginsText;
}

}  // namespace

void for_each_chat_line(const DocumentFile& file,
                        const std::function<bool(std::string line, std::int64_t number)>& body) {
  if (file.format != DocumentFormat::kJsonLines)
    throw InvalidArgument(
        fmt::format("{} is text: conversations are lines of .jsonl", file.path.string()),
        "NO_CONVERSATION", {{"path", file.path.string()}});
  for_each_json_line(file, body);
}

ChatText chat_text_of_line(std::string_view line, const ChatReading& reading,
                           const LinePlace& place, const StopCheck& stop) {
  Conversation conversation = conversation_of_line(line, reading.kind, place);
  ChatText chat;
  chat.has_lone_surrogates = conversation.has_lone_surrogates;
  if (reading.renderer && reading.learns_all) {
    chat.text =
        at_line(place, [&] { return reading.renderer->render_text(conversation.messages, stop); });
  } else if (reading.renderer) {
    RenderedChat rendered =
        at_line(place, [&] { return reading.renderer->render(conversation.messages, stop); });
    chat.text = std::move(rendered.text);
    chat.learnt = std::move(rendered.answers);
    chat.has_last_answer_alone = rendered.has_last_answer_alone;
  } else {
    chat.text = conversation.plain_prompt + conversation.plain_answer;
    chat.learnt = {{conversation.plain_prompt.size(), chat.text.size()}};
  }
  if (reading.learns_all) chat.learnt = {{0, chat.text.size()}};
  return chat;
}

ChatText encode_chat_line(std::string_view line, const ChatEncoding& encoding,
                          const LinePlace& place, WordCache& cache, const StopCheck& stop,
                          std::vector<TokenId>& out) {
  ChatText chat = chat_text_of_line(line, encoding.reading, place, stop);
  at_line(place, [&] {
    std::vector<TokenId> tokens;
    Budget budget = Budget::of_text(chat.text.size(), stop);
    encoding.tokenizer.encode(chat.text, false, cache, budget, tokens);
    const auto learnt =
        tokens_in_ranges(encoding.tokenizer, chat.text, tokens, chat.learnt, cache, stop);
    append(chat, tokens, learnt, encoding.around, out);
  });
  return chat;
}

}  // namespace meshloom::text
