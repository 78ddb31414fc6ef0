// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <map>

#include "daemon/text/template/characters.h"
#include "daemon/text/template/iteration.h"
#include "daemon/text/template/methods.h"
#include "daemon/text/template/python_text.h"
#include "daemon/text/template/str_format.h"
#include "daemon/text/template/work.h"
#include "daemon/text/utf8.h"

namespace meshloom::text::chat {
namespace {

/// A call of a method of `self`; `name` is the method's.
struct TextCall {
  Work& work;
  const Text& self;
  std::string_view name;
  const Arguments& arguments;

  std::string_view bytes() const { return self.bytes; }
  Parameters parameters(std::initializer_list<std::string_view> names,
                        std::size_t required = 0) const {
    return Parameters(work, name, arguments, names, required);
  }
  Value text(std::string bytes) const { return make_text(work, std::move(bytes), self.markup); }
  Value texts(const std::vector<std::string_view>& parts, Sequence::Kind kind) const {
    Values values;
    for (const std::string_view part : parts) append(work, values, text(std::string(part)));
    return make_sequence(work, kind, std::move(values));
  }
};

using TextMethod = Value (*)(const TextCall&);

Value change_case(const TextCall& call) {
  call.parameters({});
  call.work.spend(1 + call.bytes().size());
  if (call.name == "upper") return call.text(upper_case(call.bytes()));
  if (call.name == "title") return call.text(title_case(call.work, call.bytes()));
  if (call.name == "capitalize") return call.text(capitalized(call.work, call.bytes()));
  if (call.name == "swapcase") return call.text(swapped_case(call.work, call.bytes()));
  return call.text(lower_case(call.bytes()));
}

Value strip_ends(const TextCall& call) {
  const Parameters parameters = call.parameters({"chars"});
  std::optional<std::string_view> characters;
  if (parameters.some(0) != nullptr) characters = parameters.text(0);
  return call.text(std::string(
      strip(call.work, call.bytes(), characters, call.name != "rstrip", call.name != "lstrip")));
}

Value split_parts(const TextCall& call) {
  const Parameters parameters = call.parameters({"sep", "maxsplit"});
  std::optional<std::string_view> separator;
  if (parameters.some(0) != nullptr) separator = parameters.text(0);
  return call.texts(
      split(call.work, call.bytes(), separator, parameters.integer(1, -1), call.name == "rsplit"),
      Sequence::Kind::kList);
}

Value split_at_lines(const TextCall& call) {
  const Parameters parameters = call.parameters({"keepends"});
  return call.texts(split_lines(call.work, call.bytes(), parameters.flag(0, false)),
                    Sequence::Kind::kList);
}

Value part_in_three(const TextCall& call) {
  const Parameters parameters = call.parameters({"sep"}, 1);
  const std::string& separator = parameters.text(0);
  if (separator.empty()) call.work.fail("empty separator");
  const bool last = call.name == "rpartition";
  const std::string_view text = call.bytes();
  const std::size_t at =
      last ? find_last(call.work, text, separator) : find_text(call.work, text, separator, 0);
  if (at == kNowhere)
    return last ? call.texts({"", "", text}, Sequence::Kind::kTuple)
                : call.texts({text, "", ""}, Sequence::Kind::kTuple);
  return call.texts({text.substr(0, at), separator, text.substr(at + separator.size())},
                    Sequence::Kind::kTuple);
}

/// The part of the text between the bounds that are given as parameters `i` and `i` + 1, and how
/// many characters are before it; nothing where it begins behind the end.
std::optional<std::pair<std::string_view, std::size_t>> bounded(const TextCall& call,
                                                                const Parameters& parameters,
                                                                std::size_t i) {
  const auto size = static_cast<std::int64_t>(call.self.length);
  const auto bound = [&](std::size_t place, std::int64_t otherwise) {
    const std::int64_t index =
        parameters.some(place) == nullptr ? otherwise : parameters.integer(place);
    return index < 0 ? std::max(index + size, std::int64_t{0}) : index;
  };
  const std::int64_t begin = bound(i, 0), end = std::min(bound(i + 1, size), size);
  if (begin > size || begin > end) return std::nullopt;
  if (begin == 0 && end == size) return std::pair(call.bytes(), std::size_t{0});
  call.work.spend_bytes(4 * call.bytes().size());
  const std::size_t first = position_of(call.bytes(), static_cast<std::size_t>(begin));
  const std::size_t last = position_of(call.bytes(), static_cast<std::size_t>(end));
  return std::pair(call.bytes().substr(first, last - first), static_cast<std::size_t>(begin));
}

Value find_part(const TextCall& call) {
  const Parameters parameters = call.parameters({"sub", "start", "end"}, 1);
  const std::string& part = parameters.text(0);
  const bool last = call.name[0] == 'r';
  if (const auto place = bounded(call, parameters, 1)) {
    const auto [text, before] = *place;
    const std::size_t at =
        last ? find_last(call.work, text, part) : find_text(call.work, text, part, 0);
    if (at != kNowhere) {
      call.work.spend_bytes(at);
      return static_cast<std::int64_t>(before + count_characters(text.substr(0, at)));
    }
  }
  if (call.name.ends_with("index")) call.work.fail("substring not found");
  return std::int64_t{-1};
}

Value count_parts(const TextCall& call) {
  const Parameters parameters = call.parameters({"sub", "start", "end"}, 1);
  const auto place = bounded(call, parameters, 1);
  if (!place.has_value()) return std::int64_t{0};
  if (parameters.text(0).empty()) {
    call.work.spend_bytes(place->first.size());
    return static_cast<std::int64_t>(count_characters(place->first) + 1);
  }
  return count_text(call.work, place->first, parameters.text(0));
}

Value begins_or_ends(const TextCall& call) {
  const Parameters parameters = call.parameters({"prefix", "start", "end"}, 1);
  const auto place = bounded(call, parameters, 1);
  const auto fits = [&](const Value& value) {
    const Text* part = value.text();
    if (part == nullptr) {
      refuse_undefined(call.work, value);
      call.work.fail("{}() takes str or a tuple of str, not {}", call.name, value.type_name());
    }
    call.work.spend_bytes(part->bytes.size());
    if (!place.has_value()) return false;
    return call.name == "startswith" ? place->first.starts_with(part->bytes)
                                     : place->first.ends_with(part->bytes);
  };
  const Sequence* tuple = parameters.at(0)->sequence();
  if (tuple == nullptr || tuple->kind != Sequence::Kind::kTuple) return fits(*parameters.at(0));
  return std::any_of(tuple->items.begin(), tuple->items.end(), fits);
}

Value replace_parts(const TextCall& call) {
  const Parameters parameters = call.parameters({"old", "new", "count"}, 2);
  return call.text(replace(call.work, call.bytes(), parameters.text(0), parameters.text(1),
                           parameters.integer(2, -1)));
}

Value remove_end(const TextCall& call) {
  const Parameters parameters = call.parameters({"part"}, 1);
  const std::string& part = parameters.text(0);
  std::string_view text = call.bytes();
  if (call.name == "removeprefix" && text.starts_with(part)) text.remove_prefix(part.size());
  if (call.name == "removesuffix" && text.ends_with(part)) text.remove_suffix(part.size());
  return call.text(std::string(text));
}

Value join_parts(const TextCall& call) {
  const Parameters parameters = call.parameters({"iterable"}, 1);
  const Next next = iterate(call.work, *parameters.at(0), "can only join an iterable, not '{}'");
  std::string text;
  std::size_t count = 0;
  for (Value part; next(part); ++count) {
    if (part.text() == nullptr)
      call.work.fail("sequence item {}: expected str instance, {} found", count, part.type_name());
    if (count > 0) append(call.work, text, call.bytes());
    append(call.work, text, part.text()->bytes);
  }
  return call.text(std::move(text));
}

Value pad(const TextCall& call) {
  const Parameters parameters = call.parameters({"width", "fillchar"}, 1);
  const bool zeros = call.name == "zfill";
  const std::string fill = parameters.at(1) != nullptr ? parameters.text(1) : zeros ? "0" : " ";
  if (count_characters(fill) != 1)
    call.work.fail("the fill character must be exactly one character long");
  const auto size = static_cast<std::int64_t>(call.self.length);
  const std::int64_t width = std::max(parameters.integer(0), std::int64_t{0});
  const std::int64_t missing = std::max(width - size, std::int64_t{0});
  call.work.check_bytes(static_cast<std::uint64_t>(missing));
  call.work.spend_bytes(static_cast<std::uint64_t>(missing) * fill.size());
  // Of an odd number, the half is rounded as str.center() rounds it.
  const std::int64_t half = missing / 2 + (missing & width & 1);
  const std::int64_t left = call.name == "ljust" ? 0 : call.name == "center" ? half : missing;
  std::string_view text = call.bytes();
  std::string padded;
  if (zeros && !text.empty() && (text[0] == '-' || text[0] == '+')) {
    padded += text[0];
    text.remove_prefix(1);
  }
  for (std::int64_t i = 0; i < left; ++i) padded += fill;
  padded += text;
  for (std::int64_t i = left; i < missing; ++i) padded += fill;
  return call.text(std::move(padded));
}

/// Whether there is a character and all are of a kind.
Value all_of_kind(const TextCall& call) {
  call.parameters({});
  static const std::map<std::string_view, bool (*)(char32_t)> kKinds = {
      {"isalpha", is_letter},
      {"isdecimal", is_decimal},
      {"isdigit", is_digit_character},
      {"isnumeric", is_numeric},
      {"isspace", is_space},
      {"isalnum", [](char32_t c) { return is_letter(c) || is_numeric(c); }}};
  const auto fits = kKinds.at(call.name);
  call.work.spend(1 + call.bytes().size());
  const char* next = call.bytes().data();
  const char* const end = next + call.bytes().size();
  while (next < end)
    if (!fits(next_char(next))) return false;
  return !call.bytes().empty();
}

Value has_case(const TextCall& call) {
  call.parameters({});
  call.work.spend(1 + call.bytes().size());
  const bool lower = call.name == "islower";
  bool any = false;
  const char* next = call.bytes().data();
  const char* const end = next + call.bytes().size();
  while (next < end) {
    const char32_t c = next_char(next);
    if (is_title(c) || (lower ? is_upper(c) : is_lower(c))) return false;
    any = any || (lower ? is_lower(c) : is_upper(c));
  }
  return any;
}

Value is_title_case(const TextCall& call) {
  call.parameters({});
  call.work.spend(1 + call.bytes().size());
  bool any = false, in_word = false;
  const char* next = call.bytes().data();
  const char* const end = next + call.bytes().size();
  while (next < end) {
    const char32_t c = next_char(next);
    const bool begins = is_upper(c) || is_title(c);
    if (begins ? in_word : is_lower(c) && !in_word) return false;
    in_word = begins || is_lower(c);
    any = any || in_word;
  }
  return any;
}

Value is_all_ascii(const TextCall& call) {
  call.parameters({});
  return call.self.is_ascii();
}

Value format_text(const TextCall& call) {
  return call.text(str_format(call.work, call.bytes(), call.arguments));
}

const std::map<std::string_view, TextMethod>& methods() {
  static const std::map<std::string_view, TextMethod> kMethods = {{"capitalize", change_case},
                                                                  {"center", pad},
                                                                  {"count", count_parts},
                                                                  {"endswith", begins_or_ends},
                                                                  {"find", find_part},
                                                                  {"format", format_text},
                                                                  {"index", find_part},
                                                                  {"isalnum", all_of_kind},
                                                                  {"isalpha", all_of_kind},
                                                                  {"isascii", is_all_ascii},
                                                                  {"isdecimal", all_of_kind},
                                                                  {"isdigit", all_of_kind},
                                                                  {"islower", has_case},
                                                                  {"isnumeric", all_of_kind},
                                                                  {"isspace", all_of_kind},
                                                                  {"istitle", is_title_case},
                                                                  {"isupper", has_case},
                                                                  {"join", join_parts},
                                                                  {"ljust", pad},
                                                                  {"lower", change_case},
                                                                  {"lstrip", strip_ends},
                                                                  {"partition", part_in_three},
                                                                  {"removeprefix", remove_end},
                                                                  {"removesuffix", remove_end},
                                                                  {"replace", replace_parts},
                                                                  {"rfind", find_part},
                                                                  {"rindex", find_part},
                                                                  {"rjust", pad},
                                                                  {"rpartition", part_in_three},
                                                                  {"rsplit", split_parts},
                                                                  {"rstrip", strip_ends},
                                                                  {"split", split_parts},
                                                                  {"splitlines", split_at_lines},
                                                                  {"startswith", begins_or_ends},
                                                                  {"strip", strip_ends},
                                                                  {"swapcase", change_case},
                                                                  {"title", change_case},
                                                                  {"upper", change_case},
                                                                  {"zfill", pad}};
  return kMethods;
}

}  // namespace

bool has_text_method(std::string_view name) { return methods().contains(name); }

Value call_text_method(Work& work, const Value& self, std::string_view name,
                       const Arguments& arguments) {
  work.spend(1);
  const Text& text = *self.text();
  // Methods of a Markup escape their arguments, which nobody writes a chat template for.
  if (text.markup && !arguments.empty())
    work.not_offered("the method '{}' of a text behind the filter safe or escape", name);
  return methods().at(name)({work, text, name, arguments});
}

}  // namespace meshloom::text::chat
