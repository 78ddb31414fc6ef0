// SPDX-License-Identifier: Apache-2.0
// Filters that use other filters and tests on each element: map, select, reject and those by an
// attribute. What they give is made when it is asked for.
#include <algorithm>

#include "daemon/text/template/comparison.h"
#include "daemon/text/template/filters.h"
#include "daemon/text/template/iteration.h"
#include "daemon/text/template/tests.h"
#include "daemon/text/template/work.h"

namespace meshloom::text::chat {
namespace {

using Mapping = std::function<Value(const Value&)>;

const std::string& name_of(Work& work, const Value& name, const char* kind) {
  if (name.text() == nullptr) work.fail("the name of a {} is a {}", kind, name.type_name());
  return name.text()->bytes;
}

Mapping attribute_mapping(Work& work, const Arguments& arguments) {
  Value path, otherwise;
  for (const auto& [name, value] : arguments.named) {
    if (name == "attribute")
      path = value;
    else if (name == "default")
      otherwise = value;
    else
      work.fail("map() got an unexpected keyword argument '{}'", name);
  }
  return [&work, path = AttributePath(work, path), otherwise](const Value& element) {
    const bool has_default = !otherwise.is_missing() && !otherwise.is_none();
    return path.of(work, element, has_default ? &otherwise : nullptr);
  };
}

Mapping mapping_of(Work& work, const Arguments& arguments) {
  const bool by_attribute =
      arguments.positional.empty() &&
      std::any_of(arguments.named.begin(), arguments.named.end(),
                  [](const auto& argument) { return argument.first == "attribute"; });
  if (by_attribute) return attribute_mapping(work, arguments);
  if (arguments.positional.empty()) work.fail("map requires a filter argument");
  const std::string& name = name_of(work, arguments.positional[0], "filter");
  const Filter* filter = find_filter(name);
  if (filter == nullptr && is_filter_of_jinja(name)) work.not_offered("the filter '{}'", name);
  if (filter == nullptr) work.fail("No filter named '{}'", name);
  Arguments rest = arguments;
  rest.positional.erase(rest.positional.begin());
  return [&work, filter, rest = std::move(rest)](const Value& element) {
    return filter->apply(work, element, rest);
  };
}

Value map(Work& work, const Value& input, const Arguments& arguments) {
  auto next = [&work, input, arguments, mapping = Mapping(), next = Next()](Value& value) mutable {
    if (!next) {
      if (!truth(work, input)) return false;
      mapping = mapping_of(work, arguments);
      next = iterate(work, input);
    }
    Value element;
    if (!next(element)) return false;
    value = mapping(element);
    return true;
  };
  return make_iterator(work, std::move(next), std::max(input.depth(), arguments.depth()));
}

using Condition = std::function<bool(const Value&)>;

/// Whether an element, or its attribute, passes the test that the arguments name; is true where
/// they name none.
Condition condition_of(Work& work, const Arguments& arguments, bool by_attribute) {
  Arguments rest = arguments;
  const auto take = [&] {
    Value value = rest.positional.front();
    rest.positional.erase(rest.positional.begin());
    return value;
  };
  if (by_attribute && rest.positional.empty()) work.fail("Missing parameter for attribute name");
  const AttributePath path(work, by_attribute ? take() : Value(None()));
  if (rest.positional.empty())
    return [&work, path](const Value& element) { return truth(work, path.of(work, element)); };
  const Value taken = take();
  const std::string& name = name_of(work, taken, "test");
  const Test* test = find_test(name);
  if (test == nullptr) work.fail("No test named '{}'", name);
  return [&work, path, test, rest = std::move(rest)](const Value& element) {
    return test->holds(work, path.of(work, element), rest);
  };
}

Value selected(Work& work, const Value& input, const Arguments& arguments, bool by_attribute,
               bool wanted) {
  auto next = [&work, input, arguments, by_attribute, wanted, condition = Condition(),
               next = Next()](Value& value) mutable {
    if (!next) {
      if (!truth(work, input)) return false;
      condition = condition_of(work, arguments, by_attribute);
      next = iterate(work, input);
    }
    while (next(value))
      if (condition(value) == wanted) return true;
    return false;
  };
  return make_iterator(work, std::move(next), std::max(input.depth(), arguments.depth()));
}

Value select(Work& work, const Value& input, const Arguments& arguments) {
  return selected(work, input, arguments, false, true);
}
Value reject(Work& work, const Value& input, const Arguments& arguments) {
  return selected(work, input, arguments, false, false);
}
Value selectattr(Work& work, const Value& input, const Arguments& arguments) {
  return selected(work, input, arguments, true, true);
}
Value rejectattr(Work& work, const Value& input, const Arguments& arguments) {
  return selected(work, input, arguments, true, false);
}

constexpr Filter kSelectionFilters[] = {{"map", map},
                                        {"select", select},
                                        {"reject", reject},
                                        {"selectattr", selectattr},
                                        {"rejectattr", rejectattr}};

}  // namespace

std::span<const Filter> selection_filters() { return kSelectionFilters; }

}  // namespace meshloom::text::chat
