// SPDX-License-Identifier: Apache-2.0
// Filters that compare elements: sort, dictsort, unique, min, max.
#include <algorithm>
#include <unordered_map>

#include "daemon/text/template/characters.h"
#include "daemon/text/template/comparison.h"
#include "daemon/text/template/filters.h"
#include "daemon/text/template/iteration.h"
#include "daemon/text/template/python_text.h"
#include "daemon/text/template/work.h"

namespace meshloom::text::chat {
namespace {

/// What is compared instead of a value where the case of letters does not count.
Value without_case(Work& work, const Value& value) {
  const Text* text = value.text();
  if (text == nullptr) return value;
  work.spend(1 + text->bytes.size());
  return make_text(work, lower_case(text->bytes));
}

/// What elements are compared by: one attribute, or several between commas.
class Key {
 public:
  Key(Work& work, const Value* attribute, bool case_sensitive, bool several)
      : case_sensitive_(case_sensitive), several_(several) {
    const Text* text = attribute == nullptr ? nullptr : attribute->text();
    if (text == nullptr || !several) {
      paths_.emplace_back(work, attribute == nullptr ? Value(None()) : *attribute);
      return;
    }
    for (const std::string_view part : split(work, text->bytes, std::string_view(","), -1, false))
      paths_.emplace_back(work, make_text(work, std::string(part)));
  }

  Value of(Work& work, const Value& element) const {
    Values keys;
    for (const AttributePath& path : paths_) {
      const Value value = path.of(work, element);
      keys.push_back(case_sensitive_ ? value : without_case(work, value));
    }
    return several_ ? make_list(work, std::move(keys)) : keys.front();
  }

 private:
  bool case_sensitive_, several_;
  std::vector<AttributePath> paths_;
};

/// The values in the order of their keys; equal ones stay in theirs.
Values sorted(Work& work, const Values& values, const Values& keys, bool reverse) {
  std::vector<std::size_t> order(values.size());
  for (std::size_t i = 0; i < order.size(); ++i) order[i] = i;
  std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) {
    return reverse ? less(work, keys[b], keys[a]) : less(work, keys[a], keys[b]);
  });
  Values ordered;
  for (const std::size_t i : order) append(work, ordered, values[i]);
  return ordered;
}

Value sort(Work& work, const Value& input, const Arguments& arguments) {
  const Parameters parameters(work, "sort", arguments, {"reverse", "case_sensitive", "attribute"});
  const Key key(work, parameters.at(2), parameters.flag(1, false), true);
  const Values values = elements_of(work, input);
  Values keys;
  for (const Value& value : values) append(work, keys, key.of(work, value));
  return make_list(work, sorted(work, values, keys, parameters.flag(0, false)));
}

Value dictsort(Work& work, const Value& input, const Arguments& arguments) {
  const Parameters parameters(work, "dictsort", arguments, {"case_sensitive", "by", "reverse"});
  const std::string by = parameters.at(1) == nullptr ? "key" : parameters.text(1);
  if (by != "key" && by != "value") work.fail("You can only sort by either \"key\" or \"value\"");
  refuse_undefined(work, input);
  if (input.dict() == nullptr) work.fail("dictsort of a value of type '{}'", input.type_name());
  Values items, keys;
  for (const auto& [key, value] : input.dict()->entries()) {
    append(work, items, make_tuple(work, {key, value}));
    const Value& compared = by == "key" ? key : value;
    append(work, keys, parameters.flag(0, false) ? compared : without_case(work, compared));
  }
  return make_list(work, sorted(work, items, keys, parameters.flag(2, false)));
}

Value unique(Work& work, const Value& input, const Arguments& arguments) {
  const Parameters parameters(work, "unique", arguments, {"case_sensitive", "attribute"});
  auto key = std::make_shared<Key>(work, parameters.at(1), parameters.flag(0, false), false);
  auto next = [&work, key, next = std::optional<Next>(), input,
               seen = std::make_shared<Dict>()](Value& value) mutable {
    if (!next.has_value()) next = iterate(work, input);
    while ((*next)(value)) {
      Value compared = key->of(work, value);
      if (seen->find(work, compared) != nullptr) continue;
      seen->assign(work, std::move(compared), true);
      return true;
    }
    return false;
  };
  return make_iterator(work, std::move(next), input.depth());
}

Value extreme(Work& work, const Value& input, const Arguments& arguments, bool largest) {
  const Parameters parameters(work, largest ? "max" : "min", arguments,
                              {"case_sensitive", "attribute"});
  const Key key(work, parameters.at(1), parameters.flag(0, false), false);
  const Next next = iterate(work, input);
  Value best, element;
  if (!next(best)) return make_undefined("No aggregated item, sequence was empty.");
  Value best_key = key.of(work, best);
  while (next(element)) {
    Value element_key = key.of(work, element);
    const bool better =
        largest ? less(work, best_key, element_key, ">") : less(work, element_key, best_key);
    if (!better) continue;
    best = element;
    best_key = std::move(element_key);
  }
  return best;
}

Value smallest(Work& work, const Value& input, const Arguments& arguments) {
  return extreme(work, input, arguments, false);
}
Value largest(Work& work, const Value& input, const Arguments& arguments) {
  return extreme(work, input, arguments, true);
}

constexpr Filter kOrderFilters[] = {{"sort", sort},
                                    {"dictsort", dictsort},
                                    {"unique", unique},
                                    {"min", smallest},
                                    {"max", largest}};

}  // namespace

std::span<const Filter> order_filters() { return kOrderFilters; }

}  // namespace meshloom::text::chat
