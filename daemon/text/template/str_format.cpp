// SPDX-License-Identifier: Apache-2.0
#include "daemon/text/template/str_format.h"

#include <algorithm>

#include "daemon/text/template/format_spec.h"
#include "daemon/text/template/operators.h"
#include "daemon/text/template/python_text.h"
#include "daemon/text/template/text_form.h"
#include "daemon/text/template/work.h"
#include "daemon/text/utf8.h"

namespace meshloom::text::chat {
namespace {

bool is_index(std::string_view text) {
  return !text.empty() && text.size() < 10 &&
         std::all_of(text.begin(), text.end(), [](char c) { return c >= '0' && c <= '9'; });
}

class Formatter {
 public:
  Formatter(Work& work, std::string_view format, const Arguments& arguments)
      : work_(work), format_(format), arguments_(arguments) {}

  std::string format() {
    std::string out;
    while (at_ < format_.size()) {
      const std::size_t mark = std::min(format_.find_first_of("{}", at_), format_.size());
      append(work_, out, format_.substr(at_, mark - at_));
      at_ = mark;
      if (mark == format_.size()) break;
      const char c = format_[mark];
      if (mark + 1 < format_.size() && format_[mark + 1] == c) {
        append(work_, out, std::string_view(&c, 1));
        at_ += 2;
      } else if (c == '}') {
        work_.fail("Single '}}' encountered in format string");
      } else {
        ++at_;
        append(work_, out, field());
      }
    }
    return out;
  }

 private:
  std::string field() {
    const std::size_t end = format_.find('}', at_);
    if (end == kNowhere) work_.fail("expected '}}' before end of string");
    const std::string_view field = format_.substr(at_, end - at_);
    at_ = end + 1;
    if (field.find('{') != kNowhere) work_.not_offered("a format that has fields of its own");
    const std::size_t colon = std::min(field.find(':'), field.size());
    std::string_view name = field.substr(0, colon);
    const std::string_view spec =
        colon < field.size() ? field.substr(colon + 1) : std::string_view();
    char conversion = '\0';
    if (const std::size_t mark = name.find('!'); mark != kNowhere) {
      if (name.size() != mark + 2) work_.fail("expected ':' after conversion specifier");
      conversion = name[mark + 1];
      name = name.substr(0, mark);
    }
    return converted(value_of(name), conversion, spec);
  }

  Value value_of(std::string_view name) {
    const std::size_t end = std::min(name.find_first_of(".["), name.size());
    Value value = argument(name.substr(0, end));
    name = name.substr(end);
    while (!name.empty()) {
      const bool is_item = name[0] == '[';
      std::size_t stop = is_item ? name.find(']') : name.find_first_of(".[", 1);
      if (is_item && stop == kNowhere) work_.fail("Missing ']' in format string");
      stop = std::min(stop, name.size());
      const std::string_view part = name.substr(1, stop - 1);
      if (part.empty()) work_.fail("Empty attribute in format string");
      if (!is_item)
        value = attribute(work_, value, part);
      else if (is_index(part))
        value = item(work_, value, std::int64_t{std::stoi(std::string(part))});
      else
        value = item(work_, value, make_text(work_, std::string(part)));
      name = name.substr(std::min(stop + (is_item ? 1 : 0), name.size()));
    }
    return value;
  }

  Value argument(std::string_view name) {
    std::size_t index = 0;
    if (name.empty() || is_index(name)) {
      if (numbered_.has_value() && *numbered_ == name.empty())
        work_.fail("cannot switch between manual field specification and automatic numbering");
      numbered_ = !name.empty();
      index = name.empty() ? next_++ : static_cast<std::size_t>(std::stoi(std::string(name)));
      if (index >= arguments_.positional.size())
        work_.fail("Replacement index {} out of range for positional args tuple", index);
      return arguments_.positional[index];
    }
    const auto found = std::find_if(arguments_.named.begin(), arguments_.named.end(),
                                    [&](const auto& one) { return one.first == name; });
    if (found == arguments_.named.end()) work_.fail("the format has no argument '{}'", name);
    return found->second;
  }

  std::string converted(Value value, char conversion, std::string_view spec) {
    std::string text;
    if (conversion == 'r')
      append_repr(work_, text, value);
    else if (conversion == 's' || spec.empty())
      append_str(work_, text, value);
    else if (conversion != '\0')
      work_.not_offered("the conversion '!{}' of a format", conversion);
    else if (const Text* string = value.text())
      text = string->bytes;
    else
      return formatted_number(value, read_spec(spec));
    if (spec.empty()) return text;
    FormatSpec read = read_spec(spec);
    // A 0 in front of the width fills texts behind them.
    if (read.align == '=' && read.fill == "0") read.align = '<';
    return format_string(work_, text, read);
  }

  std::string formatted_number(const Value& value, const FormatSpec& spec) {
    if (const auto* integer = value.get<std::int64_t>())
      return format_integer(work_, *integer, spec);
    if (const auto* real = value.get<double>()) return format_real(work_, *real, spec);
    if (!value.is<bool>())
      work_.fail("unsupported format string passed to {}.__format__", value.type_name());
    return format_integer(work_, *value.integer(), spec);
  }

  FormatSpec read_spec(std::string_view text) {
    FormatSpec spec;
    std::size_t at = 0;
    const auto is_align = [&](std::size_t place) {
      return place < text.size() && std::string_view("<>=^").find(text[place]) != kNowhere;
    };
    const std::size_t fill = text.empty() ? 0 : utf8_length(text[0]);
    if (is_align(fill)) {
      spec.fill = text.substr(0, fill);
      spec.align = text[fill];
      at = fill + 1;
    } else if (is_align(0)) {
      spec.align = text[at++];
    }
    const auto take = [&](char c) { return at < text.size() && text[at] == c && ++at > 0; };
    if (take('+'))
      spec.sign = '+';
    else if (take(' '))
      spec.sign = ' ';
    else
      take('-');
    spec.alternate = take('#');
    if (at < text.size() && text[at] == '0' && spec.align == '\0') {
      spec.fill = "0";
      spec.align = '=';
    }
    spec.width = read_format_number(work_, text, at);
    spec.grouped = take(',');
    if (take('.')) spec.precision = read_format_number(work_, text, at);
    if (at < text.size()) spec.type = text[at++];
    if (at < text.size()) work_.fail("Invalid format specifier '{}'", text);
    return spec;
  }

  Work& work_;
  const std::string_view format_;
  const Arguments& arguments_;
  std::size_t at_ = 0, next_ = 0;
  std::optional<bool> numbered_;
};

}  // namespace

std::string str_format(Work& work, std::string_view format, const Arguments& arguments) {
  return Formatter(work, format, arguments).format();
}

}  // namespace meshloom::text::chat
