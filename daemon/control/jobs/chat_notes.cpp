// SPDX-License-Identifier: Apache-2.0
#include "daemon/control/jobs/chat_notes.h"

#include <fmt/format.h>

namespace meshloom::control {
namespace {

std::string conversations(std::int64_t count) {
  return count == 1 ? std::string("1 conversation") : fmt::format("{} conversations", count);
}

}  // namespace

v1::ChatData chat_data(const v1::ChatConfig& chat, const std::string& origin,
                       const text::TokenizeSummary& summary) {
  v1::ChatData data;
  data.set_kind(chat.kind());
  data.set_template_(origin);
  data.set_conversations(summary.documents);
  data.set_counted_tokens(summary.learnt_tokens);
  data.set_last_answers_only(summary.last_answers_alone);
  return data;
}

std::vector<std::string> chat_notes(const v1::ChatData& chat, std::int64_t seq_len,
                                    const std::string& field) {
  std::vector<std::string> notes;
  if (chat.last_answers_only() > 0)
    notes.push_back(fmt::format(
        "{}: of {} the last answer alone counts: the chat template renders earlier ones otherwise "
        "once more follows, as Qwen 3's leaves earlier thoughts out (a template with {{% "
        "generation "
        "%}} says which count)",
        field, conversations(chat.last_answers_only())));
  if (chat.cut() > 0)
    notes.push_back(
        fmt::format("{}: {} of more than {} tokens {} cut there: {} tokens behind are "
                    "dropped (training.seq_len)",
                    field, conversations(chat.cut()), seq_len + 1, chat.cut() == 1 ? "is" : "are",
                    chat.dropped_tokens()));
  if (chat.left_out() > 0)
    notes.push_back(fmt::format("{}: {} with no token to learn from {} left out", field,
                                conversations(chat.left_out()),
                                chat.left_out() == 1 ? "is" : "are"));
  return notes;
}

}  // namespace meshloom::control
