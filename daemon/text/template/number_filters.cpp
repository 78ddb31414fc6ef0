// SPDX-License-Identifier: Apache-2.0
// Filters that give numbers.
#include <charconv>
#include <cmath>

#include "daemon/text/template/characters.h"
#include "daemon/text/template/comparison.h"
#include "daemon/text/template/filters.h"
#include "daemon/text/template/iteration.h"
#include "daemon/text/template/operators.h"
#include "daemon/text/template/python_text.h"
#include "daemon/text/template/work.h"

namespace meshloom::text::chat {
namespace {

/// Digits without the underscores that Python allows between two of them, and no blanks around;
/// nothing where there is one elsewhere.
std::optional<std::string> plain_digits(Work& work, std::string_view text) {
  text = strip(work, text, std::nullopt, true, true);
  std::string digits;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text[i] != '_') {
      digits += text[i];
      continue;
    }
    const auto is_digit = [](char c) { return std::isxdigit(static_cast<unsigned char>(c)) != 0; };
    if (i == 0 || i + 1 == text.size() || !is_digit(text[i - 1]) || !is_digit(text[i + 1]))
      return std::nullopt;
  }
  return digits;
}

std::optional<double> read_float(Work& work, std::string_view text) {
  const std::optional<std::string> digits = plain_digits(work, text);
  if (!digits.has_value()) return std::nullopt;
  std::string_view rest = *digits;
  const bool negative = rest.starts_with('-');
  if (negative || rest.starts_with('+')) rest.remove_prefix(1);
  const std::string lower = lower_case(rest);
  double value = 0;
  if (lower == "inf" || lower == "infinity") {
    value = std::numeric_limits<double>::infinity();
  } else if (lower == "nan") {
    value = std::numeric_limits<double>::quiet_NaN();
  } else {
    if (rest.empty() || !(rest[0] == '.' || (rest[0] >= '0' && rest[0] <= '9')))
      return std::nullopt;
    const auto [end, error] = std::from_chars(rest.data(), rest.data() + rest.size(), value);
    if (end != rest.data() + rest.size() || error == std::errc::invalid_argument)
      return std::nullopt;
    if (error == std::errc::result_out_of_range)
      value = std::strtod(std::string(rest).c_str(), nullptr);
  }
  return negative ? -value : value;
}

std::optional<std::int64_t> read_integer(Work& work, std::string_view text, std::int64_t base) {
  const std::optional<std::string> digits = plain_digits(work, text);
  if (!digits.has_value()) return std::nullopt;
  std::string_view rest = *digits;
  const bool negative = rest.starts_with('-');
  if (negative || rest.starts_with('+')) rest.remove_prefix(1);
  const char prefix = base == 16 ? 'x' : base == 8 ? 'o' : base == 2 ? 'b' : '\0';
  if (prefix != '\0' && rest.size() > 2 && rest[0] == '0' && (rest[1] | 0x20) == prefix)
    rest.remove_prefix(2);
  const std::string signed_digits = (negative ? "-" : "") + std::string(rest);
  std::int64_t value = 0;
  if (rest.empty() || rest[0] == '-') return std::nullopt;
  const auto [end, error] =
      std::from_chars(signed_digits.data(), signed_digits.data() + signed_digits.size(), value,
                      static_cast<int>(base));
  if (error == std::errc::result_out_of_range)
    work.too_large("the integer {:.40} does not fit 64 bits", signed_digits);
  if (error != std::errc() || end != signed_digits.data() + signed_digits.size())
    return std::nullopt;
  return value;
}

/// int(value) of a float; nothing where it is infinite or none.
std::optional<std::int64_t> whole(Work& work, double value) {
  if (!std::isfinite(value)) return std::nullopt;
  if (std::abs(value) >= 0x1p63) work.too_large("the number {} does not fit 64 bits", value);
  return static_cast<std::int64_t>(value);
}

Value to_int(Work& work, const Value& input, const Arguments& arguments) {
  const Parameters parameters(work, "int", arguments, {"default", "base"});
  const Value otherwise = parameters.at(0) == nullptr ? Value(std::int64_t{0}) : *parameters.at(0);
  const std::int64_t base = parameters.integer(1, 10);
  refuse_undefined(work, input);
  if (const std::optional<std::int64_t> integer = input.integer()) return *integer;
  std::optional<double> real;
  if (const double* number = input.get<double>()) {
    if (std::isinf(*number)) work.fail("cannot convert float infinity to integer");
    real = *number;
  } else if (const Text* text = input.text()) {
    const bool is_base = base == 2 || base == 8 || base == 10 || base == 16;
    if (!is_base && base >= 0 && base <= 36)
      work.not_offered("int of base {}, expected 2, 8, 10 or 16", base);
    const auto integer = is_base ? read_integer(work, text->bytes, base) : std::nullopt;
    if (integer.has_value()) return *integer;
    real = read_float(work, text->bytes);
  }
  const std::optional<std::int64_t> integer = real.has_value() ? whole(work, *real) : std::nullopt;
  return integer.has_value() ? Value(*integer) : otherwise;
}

Value to_float(Work& work, const Value& input, const Arguments& arguments) {
  const Parameters parameters(work, "float", arguments, {"default"});
  refuse_undefined(work, input);
  if (input.is<double>()) return input;
  if (const std::optional<std::int64_t> integer = input.integer())
    return static_cast<double>(*integer);
  if (const Text* text = input.text())
    if (const std::optional<double> real = read_float(work, text->bytes)) return *real;
  return parameters.at(0) == nullptr ? Value(0.0) : *parameters.at(0);
}

Value absolute(Work& work, const Value& input, const Arguments& arguments) {
  const Parameters none(work, "abs", arguments, {});
  refuse_undefined(work, input);
  if (const double* real = input.get<double>()) return std::abs(*real);
  if (!input.is_number()) work.fail("bad operand type for abs(): '{}'", input.type_name());
  return *input.integer() < 0 ? negative(work, input) : positive(work, input);
}

/// Python's round() of a float: of the decimal digits it stands for, the half to the even digit.
double rounded(Work& work, double value, std::int64_t digits) {
  if (!std::isfinite(value) || digits > 323) return value;
  if (digits < -308) return std::copysign(0.0, value);
  if (digits <= 0) {
    const double power = std::pow(10.0, static_cast<double>(-digits));
    return std::nearbyint(value / power) * power;
  }
  char buffer[700];
  const auto end = std::to_chars(buffer, buffer + sizeof buffer, value, std::chars_format::fixed,
                                 static_cast<int>(digits));
  if (end.ec != std::errc()) work.fail("round to {} digits", digits);
  double result = 0;
  std::from_chars(buffer, end.ptr, result);
  return result;
}

Value round_number(Work& work, const Value& input, const Arguments& arguments) {
  const Parameters parameters(work, "round", arguments, {"precision", "method"});
  const std::string method = parameters.at(1) == nullptr ? "common" : parameters.text(1);
  const std::int64_t digits = parameters.integer(0, 0);
  refuse_undefined(work, input);
  if (!input.is_number()) work.fail("round of a value of type '{}'", input.type_name());
  if (method != "common" && method != "ceil" && method != "floor")
    work.fail("method must be common, ceil or floor");
  const double* real = input.get<double>();
  if (method == "common") {
    if (real != nullptr) return rounded(work, *real, digits);
    if (digits < 0) work.not_offered("round of an integer to {} digits", digits);
    return *input.integer();
  }
  // Python multiplies by a power of ten that is an integer where it can be, and divides by it.
  const Value ten(std::int64_t{10});
  const Value scale = arithmetic(work, Arithmetic::kPower, ten, digits);
  const Value scaled = arithmetic(work, Arithmetic::kMultiply, input, scale);
  Value whole_number = scaled;
  if (const double* number = scaled.get<double>()) {
    if (!std::isfinite(*number)) work.fail("cannot convert float {} to integer", *number);
    whole_number = *whole(work, method == "ceil" ? std::ceil(*number) : std::floor(*number));
  }
  return arithmetic(work, Arithmetic::kDivide, whole_number, scale);
}

Value sum(Work& work, const Value& input, const Arguments& arguments) {
  const Parameters parameters(work, "sum", arguments, {"attribute", "start"});
  const AttributePath path(work, parameters.at(0) == nullptr ? Value(None()) : *parameters.at(0));
  Value total = parameters.at(1) == nullptr ? Value(std::int64_t{0}) : *parameters.at(1);
  if (total.text() != nullptr) work.fail("sum() can't sum strings [use ''.join(seq) instead]");
  const Next next = iterate(work, input);
  for (Value element; next(element);)
    total = arithmetic(work, Arithmetic::kAdd, total, path.of(work, element));
  return total;
}

Value length(Work& work, const Value& input, const Arguments& arguments) {
  const Parameters none(work, "length", arguments, {});
  return static_cast<std::int64_t>(length_of(work, input));
}

constexpr Filter kNumberFilters[] = {
    {"int", to_int}, {"float", to_float}, {"abs", absolute}, {"round", round_number},
    {"sum", sum},    {"length", length},  {"count", length}};

}  // namespace

std::span<const Filter> number_filters() { return kNumberFilters; }

}  // namespace meshloom::text::chat
