// SPDX-License-Identifier: Apache-2.0
#include "daemon/text/template.h"

#include <fmt/format.h>

namespace meshloom::text {
namespace {

Template read_template_processing(const JsonPart& part) {
  part.allow_only({"type", "single", "pair", "special_tokens"});
  Template result;
  bool has_sequence = false;
  for (const JsonPart& piece : part.elements("single")) {
    piece.allow_only({"SpecialToken", "Sequence"});
    if (piece.has("Sequence")) {
      if (has_sequence) piece.not_offered("a second Sequence in a template is not known");
      has_sequence = true;
      continue;
    }
    const std::string name = piece.at("SpecialToken").text("id");
    auto& tokens = has_sequence ? result.after : result.before;
    for (const JsonPart& id : part.at("special_tokens").at(name).elements("ids"))
      tokens.push_back(static_cast<TokenId>(id.number(kMostTokens - 1)));
  }
  if (!has_sequence) part.at("single").refuse("has no Sequence");
  return result;
}

/// The id of a pair ["[CLS]", 101].
TokenId id_of_pair(const JsonPart& part, std::string_view key) {
  const auto elements = part.elements(key);
  if (elements.size() != 2) part.at(key).refuse("expected a token and its id");
  return static_cast<TokenId>(elements[1].number(kMostTokens - 1));
}

}  // namespace

Template read_template(const JsonPart& part) {
  const std::string type = part.text("type");
  if (type == "TemplateProcessing") return read_template_processing(part);
  if (type == "BertProcessing" || type == "RobertaProcessing") {
    part.allow_only({"type", "sep", "cls", "trim_offsets", "add_prefix_space"});
    return {{id_of_pair(part, "cls")}, {id_of_pair(part, "sep")}};
  }
  if (type == "ByteLevel") {
    // It changes offsets in the text alone.
    part.allow_only({"type", "add_prefix_space", "trim_offsets", "use_regex"});
    return {};
  }
  if (type != "Sequence")
    part.not_offered(fmt::format("the post-processor \"{}\" is not known", type));
  part.allow_only({"type", "processors"});
  Template all;
  for (const JsonPart& step : part.elements("processors")) {
    const Template outer = read_template(step);
    all.before.insert(all.before.begin(), outer.before.begin(), outer.before.end());
    all.after.insert(all.after.end(), outer.after.begin(), outer.after.end());
  }
  return all;
}

}  // namespace meshloom::text
