// SPDX-License-Identifier: Apache-2.0
// Filters that give texts.
#include <algorithm>

#include "daemon/text/template/characters.h"
#include "daemon/text/template/comparison.h"
#include "daemon/text/template/filters.h"
#include "daemon/text/template/iteration.h"
#include "daemon/text/template/json_form.h"
#include "daemon/text/template/methods.h"
#include "daemon/text/template/operators.h"
#include "daemon/text/template/printf_format.h"
#include "daemon/text/template/python_text.h"
#include "daemon/text/template/text_form.h"
#include "daemon/text/template/work.h"
#include "daemon/text/utf8.h"

namespace meshloom::text::chat {
namespace {

/// The filter is the method of the same name, of str(input).
Value by_method(Work& work, const Value& input, const char* name, const Arguments& arguments) {
  return call_text_method(work, str(work, input), name, arguments);
}

Value upper(Work& work, const Value& input, const Arguments& arguments) {
  return by_method(work, input, "upper", arguments);
}
Value lower(Work& work, const Value& input, const Arguments& arguments) {
  return by_method(work, input, "lower", arguments);
}
Value capitalize(Work& work, const Value& input, const Arguments& arguments) {
  return by_method(work, input, "capitalize", arguments);
}
Value trim(Work& work, const Value& input, const Arguments& arguments) {
  return by_method(work, input, "strip", arguments);
}
Value center(Work& work, const Value& input, const Arguments& arguments) {
  const Parameters parameters(work, "center", arguments, {"width"});
  return by_method(work, input, "center", {{parameters.integer(0, 80)}, {}});
}

Value title(Work& work, const Value& input, const Arguments& arguments) {
  const Parameters none(work, "title", arguments, {});
  std::string storage;
  return make_text(work, title_filter(work, str_bytes(work, input, storage)));
}

Value string(Work& work, const Value& input, const Arguments& arguments) {
  const Parameters none(work, "string", arguments, {});
  return str(work, input);
}

Value replaced(Work& work, const Value& input, const Arguments& arguments) {
  const Parameters parameters(work, "replace", arguments, {"old", "new", "count"}, 2);
  std::string texts[3];
  return make_text(work, replace(work, str_bytes(work, input, texts[0]),
                                 str_bytes(work, *parameters.at(0), texts[1]),
                                 str_bytes(work, *parameters.at(1), texts[2]),
                                 parameters.some(2) == nullptr ? -1 : parameters.integer(2)));
}

Value joined(Work& work, const Value& input, const Arguments& arguments) {
  const Parameters parameters(work, "join", arguments, {"d", "attribute"});
  std::string storage;
  const std::string between(
      parameters.at(0) == nullptr ? "" : str_bytes(work, *parameters.at(0), storage));
  const AttributePath path(work, parameters.at(1) == nullptr ? Value(None()) : *parameters.at(1));
  const Next next = iterate(work, input);
  std::string text;
  bool first = true;
  for (Value part; next(part); first = false) {
    if (!first) append(work, text, between);
    append_str(work, text, path.of(work, part));
  }
  return make_text(work, std::move(text));
}

/// What a level is indented by: a number of blanks, or a text.
std::string indention(Work& work, const Value& width) {
  if (const Text* text = width.text()) return text->bytes;
  const std::optional<std::int64_t> count = width.integer();
  refuse_undefined(work, width);
  if (!count.has_value()) work.fail("an indent of type '{}'", width.type_name());
  work.check_bytes(static_cast<std::uint64_t>(std::max(*count, std::int64_t{0})));
  return std::string(static_cast<std::size_t>(std::max(*count, std::int64_t{0})), ' ');
}

Value indented(Work& work, const Value& input, const Arguments& arguments) {
  const Parameters parameters(work, "indent", arguments, {"width", "first", "blank"});
  refuse_undefined(work, input);
  if (input.text() == nullptr) work.fail("indent of a value of type '{}'", input.type_name());
  const std::string by =
      parameters.at(0) == nullptr ? std::string(4, ' ') : indention(work, *parameters.at(0));
  const bool blank = parameters.flag(2, false);
  std::string source = input.text()->bytes;
  append(work, source, "\n");
  const std::vector<std::string_view> lines = split_lines(work, source, false);
  std::string text = parameters.flag(1, false) ? by : "";
  for (std::size_t i = 0; i < lines.size(); ++i) {
    if (i > 0) {
      append(work, text, "\n");
      if (blank || !lines[i].empty()) append(work, text, by);
    }
    append(work, text, lines[i]);
  }
  return make_text(work, std::move(text), input.text()->markup);
}

Value tojson(Work& work, const Value& input, const Arguments& arguments) {
  const Parameters parameters(work, "tojson", arguments,
                              {"ensure_ascii", "indent", "separators", "sort_keys"});
  JsonOptions options;
  options.ensure_ascii = parameters.flag(0, false);
  options.sort_keys = parameters.flag(3, false);
  if (const Value* indent = parameters.some(1)) {
    options.indent = indention(work, *indent);
    options.item_separator = ",";
  }
  if (const Value* separators = parameters.some(2)) {
    const Values both = elements_of(work, *separators);
    if (both.size() != 2 || both[0].text() == nullptr || both[1].text() == nullptr)
      work.fail("tojson(): the separators are not two strings");
    options.item_separator = both[0].text()->bytes;
    options.key_separator = both[1].text()->bytes;
  }
  return make_text(work, to_json(work, input, options));
}

Value safe(Work& work, const Value& input, const Arguments& arguments) {
  const Parameters none(work, "safe", arguments, {});
  std::string storage;
  return make_text(work, std::string(str_bytes(work, input, storage)), true);
}

Value escaped(Work& work, const Value& input, const Arguments& arguments) {
  const Parameters none(work, "escape", arguments, {});
  if (input.text() != nullptr && input.text()->markup) return input;
  std::string storage;
  return make_text(work, escaped_html(work, str_bytes(work, input, storage)), true);
}

Value force_escaped(Work& work, const Value& input, const Arguments& arguments) {
  const Parameters none(work, "forceescape", arguments, {});
  std::string storage;
  return make_text(work, escaped_html(work, str_bytes(work, input, storage)), true);
}

Value format(Work& work, const Value& input, const Arguments& arguments) {
  if (!arguments.positional.empty() && !arguments.named.empty())
    work.fail("can't handle positional and keyword arguments at the same time");
  const Value text = str(work, input);
  if (arguments.named.empty())
    return make_text(work,
                     printf_format(work, *text.text(), make_tuple(work, arguments.positional)));
  Dict names;
  for (const auto& [name, value] : arguments.named)
    names.assign(work, make_text(work, name), value);
  return make_text(work, printf_format(work, *text.text(), make_dict(work, std::move(names))));
}

Value truncate(Work& work, const Value& input, const Arguments& arguments) {
  const Parameters parameters(work, "truncate", arguments,
                              {"length", "killwords", "end", "leeway"});
  refuse_undefined(work, input);
  if (input.text() == nullptr) work.fail("truncate of a value of type '{}'", input.type_name());
  const std::string end = parameters.at(2) == nullptr ? "..." : parameters.text(2);
  // Every negative length is too small, and the lowest one would overflow below.
  const std::int64_t length = std::max(parameters.integer(0, 255), std::int64_t{-1});
  const std::int64_t leeway = parameters.some(3) == nullptr ? 5 : parameters.integer(3);
  const auto kept = length - static_cast<std::int64_t>(count_characters(end));
  if (kept < 0 || leeway < 0) work.fail("truncate: the length or the leeway is too small");
  if (static_cast<std::int64_t>(input.text()->length) - leeway <= length) return input;
  const Value count(kept);
  Value part = slice(work, input, nullptr, &count, nullptr);
  if (parameters.flag(1, false)) return make_text(work, part.text()->bytes + end);
  const std::string_view bytes = part.text()->bytes;
  return make_text(work, std::string(bytes.substr(0, bytes.rfind(' '))) + end);
}

Value wordcount(Work& work, const Value& input, const Arguments& arguments) {
  const Parameters none(work, "wordcount", arguments, {});
  std::string storage;
  const std::string_view text = str_bytes(work, input, storage);
  work.spend(1 + text.size());
  std::int64_t count = 0;
  bool in_word = false;
  for (const char* next = text.data(); next < text.data() + text.size();) {
    const char32_t c = next_char(next);
    const bool is_word = is_letter(c) || is_numeric(c) || c == '_';
    count += is_word && !in_word ? 1 : 0;
    in_word = is_word;
  }
  return count;
}

constexpr Filter kTextFilters[] = {
    {"upper", upper},     {"lower", lower},       {"capitalize", capitalize},
    {"title", title},     {"trim", trim},         {"center", center},
    {"string", string},   {"replace", replaced},  {"join", joined},
    {"indent", indented}, {"tojson", tojson},     {"safe", safe},
    {"escape", escaped},  {"e", escaped},         {"forceescape", force_escaped},
    {"format", format},   {"truncate", truncate}, {"wordcount", wordcount}};

}  // namespace

std::span<const Filter> text_filters() { return kTextFilters; }

}  // namespace meshloom::text::chat
