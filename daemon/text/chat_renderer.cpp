// SPDX-License-Identifier: Apache-2.0
#include "daemon/text/chat_renderer.h"

#include <algorithm>
#include <string_view>

#include "daemon/base/utf8.h"
#include "daemon/text/common_beginning.h"
#include "kernels/base/error.h"

namespace meshloom::text {
namespace {

using Ordered = nlohmann::ordered_json;

constexpr const char* kAssistant = "assistant";

/// No conversation holds this text, so that it shows where a template puts a content.
constexpr std::string_view kMark = "\x1Awhat the first message of a conversation says";

/// To find the answers of one conversation so many bytes are rendered at most, and so many more for
/// each of its own bytes.
constexpr std::size_t kMostRendered = std::size_t{512} << 20, kMostOfText = 64;

bool is_answer(const Ordered& message) { return message.at("role") == kAssistant; }

/// What of the messages pays for their rendering.
std::size_t bytes_of(const Ordered& messages) {
  std::size_t bytes = 0;
  for (const Ordered& message : messages)
    for (const auto& [key, value] : message.items())
      bytes += key.size() + (value.is_string() ? value.get_ref<const std::string&>().size()
                                               : value.dump().size());
  return bytes;
}

/// Its bytes pay for text once, however often it is rendered.
Budget budget_of(const Ordered& messages, const StopCheck& stop) {
  Budget budget(stop);
  budget.allow_bytes(bytes_of(messages));
  return budget;
}

/// Blocks may stand in blocks.
std::vector<ByteRange> apart(std::vector<ByteRange> ranges) {
  std::sort(ranges.begin(), ranges.end());
  std::vector<ByteRange> made;
  for (const ByteRange& range : ranges)
    if (made.empty() || made.back().second < range.first)
      made.push_back(range);
    else
      made.back().second = std::max(made.back().second, range.second);
  return made;
}

Ordered first_of(const Ordered& messages, std::size_t count) {
  Ordered first = Ordered::array();
  for (std::size_t i = 0; i < count; ++i) first.push_back(messages[i]);
  return first;
}

}  // namespace

ChatRenderer::ChatRenderer(const ChatTemplateSource& source, const NamedTokens& tokens,
                           std::int64_t now)
    : template_(source.text, source.origin), now_(now) {
  variables_ = {{"tools", nullptr}, {"documents", nullptr}};
  for (const auto& [name, token] : tokens) variables_[name] = token;
}

ChatRendering ChatRenderer::render_all(const Ordered& messages, bool begins_answer,
                                       Budget& budget) const {
  Ordered variables = variables_;
  variables["messages"] = messages;
  variables["add_generation_prompt"] = begins_answer;
  budget.allow_steps(bytes_of(messages));
  return template_.render(variables, now_, budget);
}

RenderedChat ChatRenderer::render(const Ordered& messages, const StopCheck& stop) const {
  Budget budget = budget_of(messages, stop);
  ChatRendering all = render_all(messages, false, budget);
  RenderedChat rendered{std::move(all.text), apart(std::move(all.generated))};
  if (!template_.marks_generation()) find_answers(messages, budget, &rendered);
  return rendered;
}

std::string ChatRenderer::before_answer(const Ordered& messages, std::size_t index,
                                        const std::string& with, Budget& budget) const {
  if (index > 0) return render_all(first_of(messages, index), true, budget).text;
  try {
    const std::string begun = render_all(Ordered::array(), true, budget).text;
    if (with.starts_with(begun)) return begun;
  } catch (const InvalidArgument&) {
    // Many templates look at the first message, of which there is none here.
  }
  Ordered marked = first_of(messages, 1);
  marked[0]["content"] = kMark;
  const std::string text = render_all(marked, false, budget).text;
  const std::string before = text.substr(0, text.find(kMark));
  return before.size() < text.size() && with.starts_with(before) ? before : with;
}

void ChatRenderer::find_answers(const Ordered& messages, Budget& budget,
                                RenderedChat* rendered) const {
  // A template that prints little has read all of the messages.
  const std::size_t bytes = std::max(rendered->text.size(), bytes_of(messages));
  std::size_t last = messages.size(), rendered_bytes = 0, answered = 0;
  for (std::size_t i = 0; i < messages.size(); ++i) {
    if (!is_answer(messages[i])) continue;
    last = i;
    if (rendered->has_last_answer_alone) continue;
    rendered_bytes += 2 * bytes;
    if (rendered_bytes > kMostRendered + kMostOfText * bytes)
      throw ResourceExhausted(
          fmt::format("the conversation has too many answers ({} messages) to be rendered with and "
                      "without each: a template with {{% generation %}} is rendered once",
                      messages.size()),
          "CONVERSATION_TOO_LONG");
    const std::string with = render_all(first_of(messages, i + 1), false, budget).text;
    const std::string before = before_answer(messages, i, with, budget);
    rendered->has_last_answer_alone =
        !rendered->text.starts_with(with) || !with.starts_with(before) || before.size() < answered;
    rendered->answers.emplace_back(before.size(), answered = with.size());
  }
  if (rendered->has_last_answer_alone) *rendered = last_answer(messages, last, budget);
}

RenderedChat ChatRenderer::last_answer(const Ordered& messages, std::size_t last,
                                       Budget& budget) const {
  const Ordered others = first_of(messages, last);
  const bool is_one_of_several = std::any_of(others.begin(), others.end(), is_answer);
  RenderedChat rendered{
      render_all(first_of(messages, last + 1), false, budget).text, {}, is_one_of_several};
  const std::string before = before_answer(messages, last, rendered.text, budget);
  std::size_t begin = before.size();
  if (!rendered.text.starts_with(before)) {
    // What begins an answer that is still to be given need not begin one that is there.
    const std::string without = last == 0 ? std::string() : render_all(others, false, budget).text;
    begin = base::utf8_cut(rendered.text, common_beginning(before, rendered.text));
    if (begin < without.size() || !before.starts_with(without))
      throw InvalidArgument(
          fmt::format(
              "messages[{}]: the chat template renders what is before the answer otherwise "
              "where the answer follows, so that it cannot be told what the assistant says: "
              "a template with {{% generation %}} tells it",
              last),
          "NO_ANSWER_FOUND");
  }
  rendered.answers = {{begin, rendered.text.size()}};
  return rendered;
}

std::string ChatRenderer::render_text(const Ordered& messages, const StopCheck& stop) const {
  Budget budget = budget_of(messages, stop);
  return render_all(messages, false, budget).text;
}

std::string ChatRenderer::render_prompt(const Ordered& messages, const StopCheck& stop) const {
  Budget budget = budget_of(messages, stop);
  return render_all(messages, true, budget).text;
}

std::string ChatRenderer::behind_answer(const StopCheck& stop) const {
  constexpr std::string_view kAnswer = "ANSWER";
  const Ordered turns = {{{"role", "user"}, {"content", "QUESTION"}},
                         {{"role", kAssistant}, {"content", kAnswer}}};
  try {
    Budget budget = budget_of(turns, stop);
    const std::string text = render_all(turns, false, budget).text;
    const std::size_t at = text.rfind(kAnswer);
    return at == std::string::npos ? std::string() : text.substr(at + kAnswer.size());
  } catch (const InvalidArgument&) {
    return {};  // a template with other roles
  }
}

}  // namespace meshloom::text
