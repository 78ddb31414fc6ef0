// SPDX-License-Identifier: Apache-2.0
#include "daemon/cli/data/chat_sample.h"

#include <fmt/format.h>

#include "daemon/base/enum_names.h"
#include "daemon/base/utf8.h"
#include "daemon/cli/output/output.h"

namespace meshloom::cli {
namespace {

constexpr const char* kGreen = "\033[32m";
constexpr const char* kPlain = "\033[0m";

}  // namespace

std::string chat_text(const v1::ChatData& chat) {
  std::string text = plural(chat.conversations(), "conversation");
  if (chat.kind() != v1::LINE_KIND_UNSPECIFIED) {
    text += fmt::format(
        ", {} {}", base::enum_spelling(*v1::LineKind_descriptor()->FindValueByNumber(chat.kind())),
        chat.template_().empty() ? std::string("as plain text") : "by " + chat.template_());
    text += fmt::format("; {} count", plural(chat.counted_tokens(), "token"));
  }
  if (chat.last_answers_only() > 0)
    text += fmt::format("; the last answer alone in {}", grouped_digits(chat.last_answers_only()));
  if (chat.cut() > 0)
    text += fmt::format("; {} cut, which drops {}", grouped_digits(chat.cut()),
                        plural(chat.dropped_tokens(), "token"));
  if (chat.left_out() > 0)
    text +=
        fmt::format("; {} left out, with no token to learn from", grouped_digits(chat.left_out()));
  return text;
}

std::string sample_parts_text(const v1::DataInspection& seen, std::size_t most, bool colour) {
  std::string text;
  std::size_t left = most;
  for (const v1::SamplePart& part : seen.sample_parts()) {
    if (left == 0) break;
    std::string shown = part.text();
    shown.resize(base::utf8_cut(shown, left));
    left -= shown.size() < part.text().size() ? left : shown.size();
    shown = base::printable_text(shown);
    text += !part.counts() ? shown : colour ? kGreen + shown + kPlain : "[[" + shown + "]]";
  }
  return text;
}

}  // namespace meshloom::cli
