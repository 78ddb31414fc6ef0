// SPDX-License-Identifier: Apache-2.0
// Filters that give elements, or one of them.
#include <algorithm>

#include "daemon/text/template/comparison.h"
#include "daemon/text/template/filters.h"
#include "daemon/text/template/iteration.h"
#include "daemon/text/template/operators.h"
#include "daemon/text/template/work.h"

namespace meshloom::text::chat {
namespace {

/// What gives the values one by one, once.
Value one_by_one(Work& work, Values values) {
  const Value list = make_list(work, std::move(values));
  return make_iterator(work, iterate(work, list), list.depth());
}

Value list(Work& work, const Value& input, const Arguments& arguments) {
  const Parameters none(work, "list", arguments, {});
  return make_list(work, elements_of(work, input));
}

Value first(Work& work, const Value& input, const Arguments& arguments) {
  const Parameters none(work, "first", arguments, {});
  Value element;
  if (iterate(work, input)(element)) return element;
  return make_undefined("No first item, sequence was empty.");
}

Value last(Work& work, const Value& input, const Arguments& arguments) {
  const Parameters none(work, "last", arguments, {});
  if (input.iterator() != nullptr || input.loop() != nullptr || !is_iterable(input))
    work.fail("'{}' object is not reversible", input.type_name());
  if (const std::size_t size = length_of(work, input); size == 0)
    return make_undefined("No last item, sequence was empty.");
  if (input.dict() != nullptr) return input.dict()->entries().back().first;
  if (const Sequence* sequence = input.sequence()) return sequence->items.back();
  return item(work, input, std::int64_t{-1});
}

Value reversed(Work& work, const Value& input, const Arguments& arguments) {
  const Parameters none(work, "reverse", arguments, {});
  if (input.text() != nullptr) {
    const Value step(std::int64_t{-1});
    return slice(work, input, nullptr, nullptr, &step);
  }
  Values values = elements_of(work, input);
  std::reverse(values.begin(), values.end());
  return input.iterator() != nullptr ? make_list(work, std::move(values))
                                     : one_by_one(work, std::move(values));
}

Value items(Work& work, const Value& input, const Arguments& arguments) {
  const Parameters none(work, "items", arguments, {});
  auto next = [&work, input, i = std::size_t{0}](Value& value) mutable {
    if (input.is_undefined()) return false;
    const Dict* dict = input.dict();
    if (dict == nullptr) work.fail("Can only get item pairs from a mapping.");
    if (i == dict->entries().size()) return false;
    const auto& [key, item] = dict->entries()[i++];
    value = make_tuple(work, {key, item});
    return true;
  };
  return make_iterator(work, std::move(next), input.depth());
}

/// A number of at least one.
std::size_t count_of(Work& work, const Parameters& parameters, const char* filter) {
  const std::int64_t count = parameters.integer(0);
  if (count < 1) work.not_offered("{}({}), expected 1 or more", filter, count);
  return static_cast<std::size_t>(count);
}

Value batch(Work& work, const Value& input, const Arguments& arguments) {
  const Parameters parameters(work, "batch", arguments, {"linecount", "fill_with"}, 1);
  const std::size_t count = count_of(work, parameters, "batch");
  Values batches, row;
  const Next next = iterate(work, input);
  for (Value element; next(element);) {
    if (row.size() == count) append(work, batches, make_list(work, std::exchange(row, {})));
    append(work, row, element);
  }
  if (!row.empty()) {
    const Value* fill = parameters.some(1);
    while (fill != nullptr && row.size() < count) append(work, row, *fill);
    append(work, batches, make_list(work, std::move(row)));
  }
  return one_by_one(work, std::move(batches));
}

Value slices(Work& work, const Value& input, const Arguments& arguments) {
  const Parameters parameters(work, "slice", arguments, {"slices", "fill_with"}, 1);
  const std::size_t count = count_of(work, parameters, "slice");
  const Value* fill = parameters.some(1);
  const Values all = elements_of(work, input);
  const std::size_t each = all.size() / count, longer = all.size() % count;
  Values parts;
  auto from = all.begin();
  for (std::size_t i = 0; i < count; ++i) {
    const auto end = from + static_cast<std::ptrdiff_t>(each + (i < longer ? 1 : 0));
    Values part(from, end);
    if (fill != nullptr && i >= longer) part.push_back(*fill);
    append(work, parts, make_list(work, std::move(part)));
    from = end;
  }
  return one_by_one(work, std::move(parts));
}

Value or_default(Work& work, const Value& input, const Arguments& arguments) {
  const Parameters parameters(work, "default", arguments, {"default_value", "boolean"});
  const bool is_missing =
      input.is_undefined() || (parameters.flag(1, false) && !truth(work, input));
  if (!is_missing) return input;
  return parameters.at(0) == nullptr ? constant_text("") : *parameters.at(0);
}

Value attr(Work& work, const Value& input, const Arguments& arguments) {
  const Parameters parameters(work, "attr", arguments, {"name"}, 1);
  const std::string& name = parameters.text(0);
  if (std::optional<Value> value = own_attribute(work, input, name)) return *std::move(value);
  return make_undefined("'" + std::string(input.type_name()) + "' has no attribute '" + name + "'");
}

constexpr Filter kSequenceFilters[] = {
    {"list", list},    {"first", first}, {"last", last},    {"reverse", reversed},
    {"items", items},  {"batch", batch}, {"slice", slices}, {"default", or_default},
    {"d", or_default}, {"attr", attr}};

}  // namespace

std::span<const Filter> sequence_filters() { return kSequenceFilters; }

}  // namespace meshloom::text::chat
