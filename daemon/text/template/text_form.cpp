// SPDX-License-Identifier: Apache-2.0
#include "daemon/text/template/text_form.h"

#include <charconv>
#include <cmath>

#include "daemon/text/template/characters.h"
#include "daemon/text/template/loop.h"
#include "daemon/text/template/python_text.h"
#include "daemon/text/template/syntax.h"
#include "daemon/text/template/work.h"
#include "daemon/text/utf8.h"

namespace meshloom::text::chat {
namespace {

void append_text_repr(Work& work, std::string& out, const Text& text) {
  const std::string_view bytes = text.bytes;
  const bool has_single = bytes.find('\'') != std::string_view::npos;
  const char quote = has_single && bytes.find('"') == std::string_view::npos ? '"' : '\'';
  if (text.markup) append(work, out, "Markup(");
  out += quote;
  for (std::size_t at = 0; at < bytes.size();) {
    const std::string_view one = bytes.substr(at, utf8_length(bytes[at]));
    at += one.size();
    const char* next = one.data();
    const char32_t c = next_char(next);
    const auto code = static_cast<std::uint32_t>(c);
    if (c == '\\' || c == static_cast<unsigned char>(quote))
      append(work, out, std::string{'\\', static_cast<char>(c)});
    else if (c == '\n' || c == '\r' || c == '\t')
      append(work, out, c == '\n' ? "\\n" : c == '\r' ? "\\r" : "\\t");
    else if (is_printable(c))
      append(work, out, one);
    else
      append(work, out,
             c < 0x100     ? fmt::format("\\x{:02x}", code)
             : c < 0x10000 ? fmt::format("\\u{:04x}", code)
                           : fmt::format("\\U{:08x}", code));
  }
  out += quote;
  if (text.markup) out += ')';
}

void append_items(Work& work, std::string& out, const Values& items) {
  for (std::size_t i = 0; i < items.size(); ++i) {
    if (i > 0) append(work, out, ", ");
    append_repr(work, out, items[i]);
  }
}

void append_sequence(Work& work, std::string& out, const Sequence& sequence) {
  constexpr std::string_view kBegins[] = {"[", "(", "dict_keys([", "dict_values([", "dict_items(["};
  constexpr std::string_view kEnds[] = {"]", ")", "])", "])", "])"};
  const auto kind = static_cast<int>(sequence.kind);
  append(work, out, kBegins[kind]);
  append_items(work, out, sequence.items);
  if (sequence.kind == Sequence::Kind::kTuple && sequence.items.size() == 1) out += ',';
  append(work, out, kEnds[kind]);
}

void append_dict(Work& work, std::string& out, const Dict& dict) {
  append(work, out, "{");
  for (std::size_t i = 0; i < dict.entries().size(); ++i) {
    if (i > 0) append(work, out, ", ");
    append_repr(work, out, dict.entries()[i].first);
    append(work, out, ": ");
    append_repr(work, out, dict.entries()[i].second);
  }
  append(work, out, "}");
}

std::string macro_repr(const Macro& macro) {
  const std::string& name = macro.definition->name;
  return name.empty() ? "<Macro anonymous>" : fmt::format("<Macro '{}'>", name);
}

std::string range_repr(const Range& range) {
  return range.step == 1 ? fmt::format("range({}, {})", range.start, range.stop)
                         : fmt::format("range({}, {}, {})", range.start, range.stop, range.step);
}

}  // namespace

std::string float_repr(double value) {
  if (std::isnan(value)) return "nan";
  if (std::isinf(value)) return value > 0 ? "inf" : "-inf";
  char buffer[40];
  auto end =
      std::to_chars(buffer, buffer + sizeof buffer, value, std::chars_format::scientific).ptr;
  const std::string_view digits(buffer, static_cast<std::size_t>(end - buffer));
  const std::size_t mark = digits.find('e');
  int exponent = 0;
  const char* exponent_digits = digits.data() + mark + (digits[mark + 1] == '+' ? 2 : 1);
  std::from_chars(exponent_digits, end, exponent);
  // Python writes numbers from 1e-4 to below 1e16 without an exponent.
  if (exponent < -4 || exponent >= 16) return std::string(digits);
  end = std::to_chars(buffer, buffer + sizeof buffer, value, std::chars_format::fixed).ptr;
  std::string plain(buffer, end);
  return plain.find('.') == std::string::npos ? plain + ".0" : plain;
}

void append_str(Work& work, std::string& out, const Value& value) {
  if (const Text* text = value.text())
    append(work, out, text->bytes);
  else if (!value.is_undefined())
    append_repr(work, out, value);
}

void append_repr(Work& work, std::string& out, const Value& value) {
  const Work::Level level(work);
  work.spend(1);
  if (const Text* text = value.text()) return append_text_repr(work, out, *text);
  if (const Sequence* sequence = value.sequence()) return append_sequence(work, out, *sequence);
  if (const Dict* dict = value.dict()) return append_dict(work, out, *dict);
  if (value.is_none()) return append(work, out, "None");
  if (value.is_undefined()) return append(work, out, "Undefined");
  if (const bool* flag = value.get<bool>()) return append(work, out, *flag ? "True" : "False");
  if (const double* real = value.get<double>()) return append(work, out, float_repr(*real));
  if (const auto number = value.integer()) return append(work, out, std::to_string(*number));
  if (const Range* range = value.range()) return append(work, out, range_repr(*range));
  if (const Macro* macro = value.macro()) return append(work, out, macro_repr(*macro));
  if (Loop* loop = value.loop())
    return append(work, out,
                  fmt::format("<LoopContext {}/{}>", loop->index0 + 1, loop->length(work)));
  work.not_offered("the text of a value of type '{}'", value.type_name());
}

std::string_view str_bytes(Work& work, const Value& value, std::string& storage) {
  if (const Text* text = value.text()) return text->bytes;
  storage.clear();
  append_str(work, storage, value);
  return storage;
}

Value str(Work& work, const Value& value) {
  if (value.text() != nullptr) return value;
  std::string text;
  append_str(work, text, value);
  return make_text(work, std::move(text));
}

}  // namespace meshloom::text::chat
