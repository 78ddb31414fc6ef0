// SPDX-License-Identifier: Apache-2.0
#include "daemon/text/template/tests.h"

#include <map>

#include "daemon/text/template/comparison.h"
#include "daemon/text/template/filters.h"
#include "daemon/text/template/iteration.h"
#include "daemon/text/template/methods.h"
#include "daemon/text/template/operators.h"
#include "daemon/text/template/text_form.h"
#include "daemon/text/template/work.h"

namespace meshloom::text::chat {
namespace {

/// A test of the value alone.
template <bool (*Holds)(Work&, const Value&)>
bool alone(Work& work, const Value& value, const Arguments& arguments) {
  if (!arguments.empty()) work.fail("the test takes no argument");
  return Holds(work, value);
}

/// A test of the value and another one.
template <bool (*Holds)(Work&, const Value&, const Value&)>
bool with_other(Work& work, const Value& value, const Arguments& arguments) {
  const Parameters parameters(work, "the test", arguments, {"other"}, 1);
  return Holds(work, value, *parameters.at(0));
}

bool is_defined(Work&, const Value& value) { return !value.is_undefined(); }
bool is_undefined(Work&, const Value& value) { return value.is_undefined(); }
bool is_none(Work&, const Value& value) { return value.is_none(); }
bool is_boolean(Work&, const Value& value) { return value.is<bool>(); }
bool is_true(Work&, const Value& value) { return value.is<bool>() && *value.get<bool>(); }
bool is_false(Work&, const Value& value) { return value.is<bool>() && !*value.get<bool>(); }
bool is_integer(Work&, const Value& value) { return value.is<std::int64_t>(); }
bool is_float(Work&, const Value& value) { return value.is<double>(); }
bool is_number(Work&, const Value& value) { return value.is_number(); }
bool is_string(Work&, const Value& value) { return value.text() != nullptr; }
bool is_mapping(Work&, const Value& value) { return value.dict() != nullptr; }
bool is_iterable_value(Work&, const Value& value) { return is_iterable(value); }
bool is_sequence(Work&, const Value& value) {
  const Sequence* list = value.sequence();
  return value.text() != nullptr || value.dict() != nullptr || value.range() != nullptr ||
         value.is_undefined() || (list != nullptr && list->kind <= Sequence::Kind::kTuple);
}
bool is_callable(Work&, const Value& value) {
  // Jinja's undefined value has what makes it one.
  return value.macro() != nullptr || value.method() != nullptr || value.is<Function>() ||
         value.loop() != nullptr || value.is_undefined();
}
bool is_escaped(Work&, const Value& value) {
  return value.text() != nullptr && value.text()->markup;
}

bool has_remainder(Work& work, const Value& value, std::int64_t divisor, std::int64_t wanted) {
  const Value rest = arithmetic(work, Arithmetic::kRemainder, value, divisor);
  return equal(work, rest, wanted);
}
bool is_odd(Work& work, const Value& value) { return has_remainder(work, value, 2, 1); }
bool is_even(Work& work, const Value& value) { return has_remainder(work, value, 2, 0); }
bool is_divisible(Work& work, const Value& value, const Value& by) {
  return equal(work, arithmetic(work, Arithmetic::kRemainder, value, by), std::int64_t{0});
}

bool holds_case(Work& work, const Value& value, const char* method) {
  return truth(work, call_text_method(work, str(work, value), method, {}));
}
bool is_in_lower(Work& work, const Value& value) { return holds_case(work, value, "islower"); }
bool is_in_upper(Work& work, const Value& value) { return holds_case(work, value, "isupper"); }

bool is_filter(Work&, const Value& value) {
  return value.text() != nullptr &&
         (find_filter(value.text()->bytes) != nullptr || is_filter_of_jinja(value.text()->bytes));
}
bool is_test(Work&, const Value& value) {
  return value.text() != nullptr && find_test(value.text()->bytes) != nullptr;
}

bool is_equal(Work& work, const Value& a, const Value& b) { return equal(work, a, b); }
bool is_other(Work& work, const Value& a, const Value& b) { return !equal(work, a, b); }
bool is_less(Work& work, const Value& a, const Value& b) { return less(work, a, b); }
bool is_at_most(Work& work, const Value& a, const Value& b) { return less_or_equal(work, a, b); }
bool is_greater(Work& work, const Value& a, const Value& b) { return less(work, b, a, ">"); }
bool is_at_least(Work& work, const Value& a, const Value& b) {
  return less_or_equal(work, b, a, ">=");
}
bool is_in(Work& work, const Value& value, const Value& container) {
  return contains(work, container, value);
}

constexpr Test kTests[] = {
    {"defined", alone<is_defined>},
    {"undefined", alone<is_undefined>},
    {"none", alone<is_none>},
    {"boolean", alone<is_boolean>},
    {"true", alone<is_true>},
    {"false", alone<is_false>},
    {"integer", alone<is_integer>},
    {"float", alone<is_float>},
    {"number", alone<is_number>},
    {"string", alone<is_string>},
    {"mapping", alone<is_mapping>},
    {"iterable", alone<is_iterable_value>},
    {"sequence", alone<is_sequence>},
    {"callable", alone<is_callable>},
    {"escaped", alone<is_escaped>},
    {"odd", alone<is_odd>},
    {"even", alone<is_even>},
    {"divisibleby", with_other<is_divisible>},
    {"lower", alone<is_in_lower>},
    {"upper", alone<is_in_upper>},
    {"filter", alone<is_filter>},
    {"test", alone<is_test>},
    {"sameas", with_other<same_object>},
    {"in", with_other<is_in>},
    {"==", with_other<is_equal>},
    {"eq", with_other<is_equal>},
    {"equalto", with_other<is_equal>},
    {"!=", with_other<is_other>},
    {"ne", with_other<is_other>},
    {"<", with_other<is_less>},
    {"lt", with_other<is_less>},
    {"lessthan", with_other<is_less>},
    {"<=", with_other<is_at_most>},
    {"le", with_other<is_at_most>},
    {">", with_other<is_greater>},
    {"gt", with_other<is_greater>},
    {"greaterthan", with_other<is_greater>},
    {">=", with_other<is_at_least>},
    {"ge", with_other<is_at_least>},
};

}  // namespace

const Test* find_test(std::string_view name) {
  static const std::map<std::string_view, const Test*> kByName = [] {
    std::map<std::string_view, const Test*> all;
    for (const Test& test : kTests) all.emplace(test.name, &test);
    return all;
  }();
  const auto found = kByName.find(name);
  return found == kByName.end() ? nullptr : found->second;
}

}  // namespace meshloom::text::chat
