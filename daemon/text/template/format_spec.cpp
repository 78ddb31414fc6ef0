// SPDX-License-Identifier: Apache-2.0
#include "daemon/text/template/format_spec.h"

#include <algorithm>
#include <charconv>
#include <cmath>

#include "daemon/text/template/characters.h"
#include "daemon/text/template/python_text.h"
#include "daemon/text/template/text_form.h"
#include "daemon/text/template/work.h"

namespace meshloom::text::chat {
namespace {

/// `sign` and prefix in front of `digits`, padded to the width.
std::string padded(Work& work, std::string_view sign, std::string_view digits,
                   const FormatSpec& spec, char usual) {
  const char align = spec.align == '\0' ? usual : spec.align;
  const auto size = static_cast<std::int64_t>(count_characters(sign) + count_characters(digits));
  const std::int64_t missing = std::max(spec.width - size, std::int64_t{0});
  const std::int64_t left = align == '<' ? 0 : align == '^' ? missing / 2 : missing;
  std::string out;
  if (align == '=') out += sign;
  for (std::int64_t i = 0; i < left; ++i) append(work, out, spec.fill);
  if (align != '=') out += sign;
  append(work, out, digits);
  for (std::int64_t i = left; i < missing; ++i) append(work, out, spec.fill);
  return out;
}

std::string sign_of(bool negative, const FormatSpec& spec) {
  if (negative) return "-";
  return spec.sign == '-' ? "" : std::string(1, spec.sign);
}

/// Commas between each three of the digits in front of the point.
std::string grouped(const std::string& digits) {
  const std::size_t whole = std::min(digits.find_first_not_of("0123456789"), digits.size());
  std::string out;
  for (std::size_t i = 0; i < digits.size(); ++i) {
    if (i > 0 && i < whole && (whole - i) % 3 == 0) out += ',';
    out += digits[i];
  }
  return out;
}

/// At least two digits of an exponent, which both have.
std::string digits_of(double value, std::chars_format format, int precision) {
  std::string buffer(static_cast<std::size_t>(precision) + 350, '\0');
  const auto end =
      std::to_chars(buffer.data(), buffer.data() + buffer.size(), value, format, precision).ptr;
  buffer.resize(static_cast<std::size_t>(end - buffer.data()));
  return buffer;
}

void make_upper(std::string& digits) {
  for (char& c : digits)
    if (c >= 'a' && c <= 'z') c = static_cast<char>(c - 32);
}

}  // namespace

std::int64_t read_format_number(Work& work, std::string_view text, std::size_t& at) {
  std::int64_t number = 0;
  while (at < text.size() && text[at] >= '0' && text[at] <= '9') {
    number = number * 10 + (text[at++] - '0');
    if (number > kMostFormatWidth)
      work.too_large("a format asks for more than {} characters", kMostFormatWidth);
  }
  return number;
}

std::string format_integer(Work& work, std::int64_t value, const FormatSpec& spec) {
  if (spec.type != '\0' && std::string_view("eEfFgG%").find(spec.type) != std::string_view::npos)
    return format_real(work, static_cast<double>(value), spec);
  const std::string_view types = "dnxXob";
  const std::size_t type = spec.type == '\0' ? 0 : types.find(spec.type);
  if (type == std::string_view::npos) work.not_offered("the format '{}' of an integer", spec.type);
  const bool negative = value < 0;
  const std::uint64_t size = negative ? std::uint64_t{0} - static_cast<std::uint64_t>(value)
                                      : static_cast<std::uint64_t>(value);
  constexpr int kBases[] = {10, 10, 16, 16, 8, 2};
  char buffer[72];
  const auto end = std::to_chars(buffer, buffer + sizeof buffer, size, kBases[type]).ptr;
  std::string digits(buffer, end);
  if (const auto missing = spec.precision - static_cast<std::int64_t>(digits.size()); missing > 0)
    digits.insert(0, static_cast<std::size_t>(missing), '0');
  if (spec.grouped) digits = grouped(digits);
  std::string front = sign_of(negative, spec);
  if (spec.alternate && type > 1) front += std::string{'0', spec.type};
  if (spec.type == 'X') make_upper(digits);
  return padded(work, front, digits, spec, '>');
}

std::string format_real(Work& work, double value, const FormatSpec& spec) {
  char type = spec.type;
  const bool negative = std::signbit(value) && !std::isnan(value);
  double size = std::abs(value);
  if (type == '%') size *= 100;
  const bool upper = type == 'E' || type == 'F' || type == 'G';
  if (upper) type = static_cast<char>(type + 32);
  std::string digits;
  const int precision = static_cast<int>(spec.precision < 0 ? 6 : spec.precision);
  if (!std::isfinite(size))
    digits = std::isnan(size) ? "nan" : "inf";
  else if (type == '\0' && spec.precision < 0)
    digits = float_repr(size);
  else if (type == 'f' || type == '%')
    digits = digits_of(size, std::chars_format::fixed, precision);
  else if (type == 'e')
    digits = digits_of(size, std::chars_format::scientific, precision);
  else if (type == 'g')
    digits = digits_of(size, std::chars_format::general, std::max(precision, 1));
  else
    work.not_offered("the format '{}' of a float with a precision of {}", spec.type,
                     spec.precision);
  if (spec.grouped) digits = grouped(digits);
  if (type == '%') digits += '%';
  if (upper) make_upper(digits);
  return padded(work, sign_of(negative, spec), digits, spec, '>');
}

std::string format_string(Work& work, std::string_view text, const FormatSpec& spec) {
  if ((spec.type != '\0' && spec.type != 's') || spec.align == '=' || spec.sign != '-' ||
      spec.grouped || spec.alternate)
    work.fail("a format for numbers is given a str");
  const std::size_t length = count_characters(text);
  if (spec.precision >= 0 && static_cast<std::size_t>(spec.precision) < length)
    text = text.substr(0, position_of(text, static_cast<std::size_t>(spec.precision)));
  return padded(work, "", text, spec, '<');
}

}  // namespace meshloom::text::chat
