// SPDX-License-Identifier: Apache-2.0
#include <cmath>
#include <limits>

#include "daemon/text/template/iteration.h"
#include "daemon/text/template/operators.h"
#include "daemon/text/template/printf_format.h"
#include "daemon/text/template/python_text.h"
#include "daemon/text/template/work.h"

namespace meshloom::text::chat {
namespace {

constexpr const char* kSigns[] = {"+", "-", "*", "/", "//", "%", "** or pow()"};

[[noreturn]] void refuse_types(Work& work, Arithmetic op, const Value& a, const Value& b) {
  refuse_undefined(work, a);
  refuse_undefined(work, b);
  if (op == Arithmetic::kAdd && a.text() != nullptr)
    work.fail("can only concatenate str (not \"{}\") to str", b.type_name());
  work.fail("unsupported operand type(s) for {}: '{}' and '{}'", kSigns[static_cast<int>(op)],
            a.type_name(), b.type_name());
}

[[noreturn]] void refuse_size(Work& work) { work.too_large("an integer does not fit 64 bits"); }

double real_of(const Value& value) {
  const double* real = value.get<double>();
  return real != nullptr ? *real : static_cast<double>(*value.integer());
}

std::int64_t floor_divide(Work& work, std::int64_t a, std::int64_t b) {
  if (b == 0) work.fail("integer division or modulo by zero");
  if (b == -1) {
    if (a == std::numeric_limits<std::int64_t>::min()) refuse_size(work);
    return -a;
  }
  const std::int64_t quotient = a / b;
  return a % b != 0 && (a < 0) != (b < 0) ? quotient - 1 : quotient;
}

std::int64_t remainder_of(Work& work, std::int64_t a, std::int64_t b) {
  if (b == 0) work.fail("integer division or modulo by zero");
  if (b == -1) return 0;
  const std::int64_t rest = a % b;
  return rest != 0 && (rest < 0) != (b < 0) ? rest + b : rest;
}

Value power(Work& work, double base, double exponent) {
  if (base == 0 && exponent < 0) work.fail("0.0 cannot be raised to a negative power");
  if (base < 0 && std::isfinite(exponent) && exponent != std::floor(exponent))
    work.not_offered("a complex number, which {} ** {} is", base, exponent);
  const double result = std::pow(base, exponent);
  if (std::isinf(result) && std::isfinite(base) && std::isfinite(exponent))
    work.fail("(34, 'Numerical result out of range')");
  return result;
}

Value power(Work& work, std::int64_t base, std::int64_t exponent) {
  if (exponent < 0) return power(work, static_cast<double>(base), static_cast<double>(exponent));
  std::int64_t result = 1;
  if (base == 0 || base == 1) return exponent == 0 ? 1 : base;
  if (base == -1) return std::int64_t{exponent % 2 == 0 ? 1 : -1};
  for (; exponent > 0; --exponent)
    if (__builtin_mul_overflow(result, base, &result)) refuse_size(work);
  return result;
}

/// Python's quotient is the float next to the exact one.
double true_divide(Work& work, const Value& a, const Value& b) {
  const bool is_real = a.is<double>() || b.is<double>();
  if (real_of(b) == 0) work.fail("{}division by zero", is_real ? "float " : "");
  if (is_real) return real_of(a) / real_of(b);
  return static_cast<double>(static_cast<long double>(*a.integer()) /
                             static_cast<long double>(*b.integer()));
}

Value of_integers(Work& work, Arithmetic op, std::int64_t a, std::int64_t b) {
  std::int64_t result = 0;
  switch (op) {
    case Arithmetic::kAdd:
      if (__builtin_add_overflow(a, b, &result)) refuse_size(work);
      return result;
    case Arithmetic::kSubtract:
      if (__builtin_sub_overflow(a, b, &result)) refuse_size(work);
      return result;
    case Arithmetic::kMultiply:
      if (__builtin_mul_overflow(a, b, &result)) refuse_size(work);
      return result;
    case Arithmetic::kDivide: return true_divide(work, a, b);
    case Arithmetic::kFloorDivide: return floor_divide(work, a, b);
    case Arithmetic::kRemainder: return remainder_of(work, a, b);
    case Arithmetic::kPower: break;
  }
  return power(work, a, b);
}

/// Quotient and remainder with the sign of the divisor, as Python's float has them.
std::pair<double, double> divide_floor(Work& work, double a, double b, const char* error) {
  if (b == 0) work.fail("{}", error);
  double rest = std::fmod(a, b);
  double quotient = (a - rest) / b;
  if (rest != 0) {
    if ((b < 0) != (rest < 0)) {
      rest += b;
      quotient -= 1;
    }
  } else {
    rest = std::copysign(0.0, b);
  }
  if (quotient == 0) return {std::copysign(0.0, a / b), rest};
  double floor = std::floor(quotient);
  if (quotient - floor > 0.5) floor += 1;
  return {floor, rest};
}

Value of_reals(Work& work, Arithmetic op, double a, double b) {
  switch (op) {
    case Arithmetic::kAdd: return a + b;
    case Arithmetic::kSubtract: return a - b;
    case Arithmetic::kMultiply: return a * b;
    case Arithmetic::kDivide: return true_divide(work, a, b);
    case Arithmetic::kFloorDivide:
      return divide_floor(work, a, b, "float floor division by zero").first;
    case Arithmetic::kRemainder: return divide_floor(work, a, b, "float modulo").second;
    case Arithmetic::kPower: break;
  }
  return power(work, a, b);
}

Value join_texts(Work& work, const Text& a, const Text& b) {
  // What is marked as safe escapes what it is joined with.
  const bool markup = a.markup || b.markup;
  const bool escape_a = markup && !a.markup, escape_b = markup && !b.markup;
  work.check_bytes(a.bytes.size() + b.bytes.size());
  std::string text = escape_a ? escaped_html(work, a.bytes) : a.bytes;
  text += escape_b ? escaped_html(work, b.bytes) : b.bytes;
  return make_text(work, std::move(text), markup);
}

Value join_lists(Work& work, const Sequence& a, const Sequence& b) {
  work.check_bytes((a.items.size() + b.items.size()) * sizeof(Value));
  Values items = a.items;
  items.insert(items.end(), b.items.begin(), b.items.end());
  return make_sequence(work, a.kind, std::move(items));
}

std::uint64_t repeated_size(Work& work, std::size_t size, std::int64_t count) {
  std::uint64_t all = 0;
  if (count <= 0) return 0;
  if (__builtin_mul_overflow(static_cast<std::uint64_t>(size), static_cast<std::uint64_t>(count),
                             &all))
    work.too_large("a value of {} elements, {} times", size, count);
  return all;
}

/// A text or a list so many times; nothing where the value is neither.
std::optional<Value> repeated(Work& work, const Value& value, std::int64_t count) {
  if (const Text* text = value.text()) {
    const std::uint64_t size = repeated_size(work, text->bytes.size(), count);
    work.check_bytes(size);
    std::string all;
    all.reserve(size);
    for (std::int64_t i = 0; all.size() < size && i < count; ++i) all += text->bytes;
    return make_text(work, std::move(all), text->markup);
  }
  const Sequence* list = value.sequence();
  if (list == nullptr || list->kind > Sequence::Kind::kTuple) return std::nullopt;
  const std::uint64_t size = repeated_size(work, list->items.size(), count);
  if (size > (std::uint64_t{1} << 32)) work.too_large("a list of {} elements", size);
  work.check_bytes(size * sizeof(Value));
  work.spend(1 + size);
  Values items;
  items.reserve(size);
  for (std::int64_t i = 0; items.size() < size && i < count; ++i)
    items.insert(items.end(), list->items.begin(), list->items.end());
  return make_sequence(work, list->kind, std::move(items));
}

}  // namespace

Value arithmetic(Work& work, Arithmetic op, const Value& a, const Value& b) {
  work.spend(1);
  if (a.is_number() && b.is_number()) {
    if (a.is<double>() || b.is<double>()) return of_reals(work, op, real_of(a), real_of(b));
    return of_integers(work, op, *a.integer(), *b.integer());
  }
  if (op == Arithmetic::kRemainder && a.text() != nullptr)
    return make_text(work, printf_format(work, *a.text(), b));
  if (op == Arithmetic::kAdd) {
    if (a.text() != nullptr && b.text() != nullptr) return join_texts(work, *a.text(), *b.text());
    const Sequence *first = a.sequence(), *second = b.sequence();
    if (first != nullptr && second != nullptr && first->kind == second->kind &&
        first->kind <= Sequence::Kind::kTuple)
      return join_lists(work, *first, *second);
  }
  if (op == Arithmetic::kMultiply) {
    std::optional<Value> all;
    if (const auto count = b.integer()) all = repeated(work, a, *count);
    if (const auto count = a.integer(); count && !all) all = repeated(work, b, *count);
    if (all.has_value()) return *std::move(all);
  }
  refuse_types(work, op, a, b);
}

Value negative(Work& work, const Value& value) {
  if (const double* real = value.get<double>()) return -*real;
  const std::optional<std::int64_t> integer = value.integer();
  refuse_undefined(work, value);
  if (!integer.has_value()) work.fail("bad operand type for unary -: '{}'", value.type_name());
  return of_integers(work, Arithmetic::kSubtract, 0, *integer);
}

Value positive(Work& work, const Value& value) {
  if (value.is<double>()) return value;
  const std::optional<std::int64_t> integer = value.integer();
  refuse_undefined(work, value);
  if (!integer.has_value()) work.fail("bad operand type for unary +: '{}'", value.type_name());
  return *integer;
}

}  // namespace meshloom::text::chat
