// SPDX-License-Identifier: Apache-2.0
#include "daemon/text/template/printf_format.h"

#include <cmath>

#include "daemon/text/template/format_spec.h"
#include "daemon/text/template/iteration.h"
#include "daemon/text/template/python_text.h"
#include "daemon/text/template/text_form.h"
#include "daemon/text/template/work.h"
#include "daemon/text/utf8.h"

namespace meshloom::text::chat {
namespace {

class Printer {
 public:
  Printer(Work& work, const Text& format, const Value& values)
      : work_(work), format_(format.bytes), values_(values) {
    if (const Sequence* tuple = values.sequence();
        tuple != nullptr && tuple->kind == Sequence::Kind::kTuple)
      tuple_ = tuple;
  }

  std::string print() {
    std::string out;
    while (at_ < format_.size()) {
      const std::size_t mark = std::min(format_.find('%', at_), format_.size());
      append(work_, out, format_.substr(at_, mark - at_));
      at_ = mark + 1;
      if (mark < format_.size()) append(work_, out, conversion());
    }
    const bool is_whole = values_.dict() == nullptr && values_.sequence() == nullptr &&
                          values_.range() == nullptr && !values_.is_undefined();
    const bool rest =
        tuple_ != nullptr ? used_ < tuple_->items.size() : used_ == 0 && !by_name_ && is_whole;
    if (rest) work_.fail("not all arguments converted during string formatting");
    return out;
  }

 private:
  char next() {
    if (at_ >= format_.size()) work_.fail("incomplete format");
    return format_[at_++];
  }

  Value next_value() {
    if (tuple_ != nullptr ? used_ >= tuple_->items.size() : used_ >= 1)
      work_.fail("not enough arguments for format string");
    return tuple_ != nullptr ? tuple_->items[used_++] : (++used_, values_);
  }
  Value named_value() {
    const std::size_t end = format_.find(')', at_);
    if (end == std::string_view::npos) work_.fail("incomplete format key");
    const std::string_view name = format_.substr(at_, end - at_);
    at_ = end + 1;
    if (values_.dict() == nullptr) work_.fail("format requires a mapping");
    const Value* value = values_.dict()->find(work_, name);
    if (value == nullptr) work_.fail("the format's key '{}' is not in the mapping", name);
    by_name_ = true;
    return *value;
  }

  std::int64_t number() {
    if (at_ >= format_.size() || format_[at_] != '*')
      return read_format_number(work_, format_, at_);
    ++at_;
    const Value value = next_value();
    if (!value.integer().has_value()) work_.fail("* wants int");
    if (*value.integer() > kMostFormatWidth || *value.integer() < -kMostFormatWidth)
      work_.too_large("a format asks for more than {} characters", kMostFormatWidth);
    return *value.integer();
  }

  std::string conversion() {
    FormatSpec spec;
    std::optional<Value> value;
    if (at_ < format_.size() && format_[at_] == '(') {
      ++at_;
      value = named_value();
    }
    bool left = false, zeros = false;
    for (;; ++at_) {
      const char flag = at_ < format_.size() ? format_[at_] : '\0';
      if (flag == '-')
        left = true;
      else if (flag == '0')
        zeros = true;
      else if (flag == '+')
        spec.sign = '+';
      else if (flag == ' ')
        spec.sign = spec.sign == '+' ? '+' : ' ';
      else if (flag == '#')
        spec.alternate = true;
      else
        break;
    }
    spec.width = number();
    if (spec.width < 0) {
      left = true;
      spec.width = -spec.width;
    }
    if (at_ < format_.size() && format_[at_] == '.') {
      ++at_;
      spec.precision = std::max(number(), std::int64_t{0});
    }
    spec.type = next();
    while (spec.type == 'h' || spec.type == 'l' || spec.type == 'L') spec.type = next();
    if (spec.type == '%') return "%";
    if (!value.has_value()) value = next_value();
    spec.align = left ? '<' : '\0';
    if (zeros && !left) {
      spec.align = '=';
      spec.fill = "0";
    }
    return converted(*value, spec);
  }

  std::string converted(const Value& value, FormatSpec spec) {
    const std::string_view kNumbers = "diuxXoeEfFgG";
    if (kNumbers.find(spec.type) != std::string_view::npos) return converted_number(value, spec);
    std::string text;
    if (spec.type == 's')
      append_str(work_, text, value);
    else if (spec.type == 'r')
      append_repr(work_, text, value);
    else if (spec.type == 'c')
      text = character(value);
    else
      work_.not_offered("the conversion '%{}' of a format", spec.type);
    FormatSpec plain;
    plain.align = spec.align == '<' ? '<' : '>';
    plain.width = spec.width;
    plain.precision = spec.type == 'c' ? -1 : spec.precision;
    return format_string(work_, text, plain);
  }

  std::string converted_number(const Value& value, FormatSpec spec) {
    refuse_undefined(work_, value);
    if (!value.is_number())
      work_.fail("%{} format: a real number is required, not {}", spec.type, value.type_name());
    if (std::string_view("diuxXo").find(spec.type) == std::string_view::npos) {
      const double* real = value.get<double>();
      return format_real(work_, real != nullptr ? *real : static_cast<double>(*value.integer()),
                         spec);
    }
    const bool decimal = spec.type == 'd' || spec.type == 'i' || spec.type == 'u';
    if (decimal) spec.type = 'd';
    const double* real = value.get<double>();
    if (real != nullptr && !decimal)
      work_.fail("%{} format: an integer is required, not float", spec.type);
    if (real != nullptr && !(std::abs(*real) < 0x1p63))
      work_.too_large("an integer does not fit 64 bits");
    return format_integer(
        work_, real != nullptr ? static_cast<std::int64_t>(*real) : *value.integer(), spec);
  }

  std::string character(const Value& value) {
    if (const Text* text = value.text(); text != nullptr && text->length == 1) return text->bytes;
    const std::optional<std::int64_t> code = value.integer();
    if (!code || *code < 0 || *code > 0x10FFFF || (*code >= 0xD800 && *code < 0xE000))
      work_.fail("%c requires int or char");
    std::string text;
    append_utf8(static_cast<char32_t>(*code), text);
    return text;
  }

  Work& work_;
  const std::string_view format_;
  const Value& values_;
  const Sequence* tuple_ = nullptr;
  std::size_t at_ = 0, used_ = 0;
  bool by_name_ = false;
};

}  // namespace

std::string printf_format(Work& work, const Text& format, const Value& values) {
  if (format.markup) work.not_offered("% of a text behind the filter safe or escape");
  return Printer(work, format, values).print();
}

}  // namespace meshloom::text::chat
