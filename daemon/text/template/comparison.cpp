// SPDX-License-Identifier: Apache-2.0
#include "daemon/text/template/comparison.h"

#include <algorithm>
#include <cmath>
#include <functional>

#include "daemon/text/template/iteration.h"
#include "daemon/text/template/loop.h"
#include "daemon/text/template/python_text.h"
#include "daemon/text/template/work.h"

namespace meshloom::text::chat {
namespace {

/// Any int or float, exactly.
long double number(const Value& value) {
  if (const double* real = value.get<double>()) return *real;
  return static_cast<long double>(*value.integer());
}

bool equal_items(Work& work, const Values& a, const Values& b) {
  if (a.size() != b.size()) return false;
  for (std::size_t i = 0; i < a.size(); ++i)
    if (!equal(work, a[i], b[i])) return false;
  return true;
}

bool equal_dicts(Work& work, const Dict& a, const Dict& b) {
  if (a.entries().size() != b.entries().size()) return false;
  return std::all_of(a.entries().begin(), a.entries().end(), [&](const Dict::Entry& entry) {
    const Value* other = b.find(work, entry.first);
    return other != nullptr && equal(work, entry.second, *other);
  });
}

bool equal_ranges(const Range& a, const Range& b) {
  const std::int64_t size = a.size();
  if (size != b.size()) return false;
  return size == 0 || (a.start == b.start && (size == 1 || a.step == b.step));
}

bool same_objects(const Value& a, const Value& b) {
  if (a.storage().index() != b.storage().index()) return false;
  return std::visit(
      [&](const auto& object) {
        using Type = std::remove_cvref_t<decltype(object)>;
        if constexpr (std::is_same_v<Type, Function>)
          return object == *b.get<Type>();
        else if constexpr (requires { object.get(); })
          return object.get() == b.get<Type>()->get();
        else
          return true;
      },
      a.storage());
}

/// The first place where both differ decides.
bool less_sequences(Work& work, const Sequence& a, const Sequence& b, const char* sign,
                    bool or_equal) {
  const std::size_t size = std::min(a.items.size(), b.items.size());
  for (std::size_t i = 0; i < size; ++i) {
    if (equal(work, a.items[i], b.items[i])) continue;
    return or_equal ? less_or_equal(work, a.items[i], b.items[i], sign)
                    : less(work, a.items[i], b.items[i], sign);
  }
  return or_equal ? a.items.size() <= b.items.size() : a.items.size() < b.items.size();
}

bool ordered(Work& work, const Value& a, const Value& b, const char* sign, bool or_equal) {
  work.spend(1);
  if (a.is_number() && b.is_number())
    return or_equal ? number(a) <= number(b) : number(a) < number(b);
  const Text *text = a.text(), *other = b.text();
  if (text != nullptr && other != nullptr) {
    // The order of UTF-8 is that of the characters.
    work.spend_bytes(std::min(text->bytes.size(), other->bytes.size()));
    return or_equal ? text->bytes <= other->bytes : text->bytes < other->bytes;
  }
  const Sequence *list = a.sequence(), *second = b.sequence();
  if (list != nullptr && second != nullptr && list->kind == second->kind &&
      list->kind <= Sequence::Kind::kTuple)
    return less_sequences(work, *list, *second, sign, or_equal);
  refuse_undefined(work, a);
  refuse_undefined(work, b);
  work.fail("'{}' not supported between instances of '{}' and '{}'", sign, a.type_name(),
            b.type_name());
}

std::size_t mixed(std::size_t a, std::size_t b) {
  return a * 0x9E3779B97F4A7C15U + (b ^ (b >> 29)) + 0x7F4A7C15U;
}

std::size_t hash_of_number(const Value& value) {
  if (const double* real = value.get<double>()) {
    if (std::nearbyint(*real) != *real || std::abs(*real) >= 0x1p63)
      return std::hash<double>()(*real);
    return mixed(1, static_cast<std::size_t>(static_cast<std::int64_t>(*real)));
  }
  return mixed(1, static_cast<std::size_t>(*value.integer()));
}

/// Whether a value is neither a list nor a dict; what a tuple holds is not looked at.
bool may_be_key(const Value& value) {
  const Sequence* list = value.sequence();
  return list == nullptr ? value.dict() == nullptr : list->kind == Sequence::Kind::kTuple;
}

}  // namespace

bool equal(Work& work, const Value& a, const Value& b) {
  work.spend(1);
  if (a.is_number() && b.is_number()) return number(a) == number(b);
  if (a.storage().index() != b.storage().index()) return false;
  if (const Text* text = a.text()) {
    work.spend_bytes(std::min(text->bytes.size(), b.text()->bytes.size()));
    return text->bytes == b.text()->bytes;
  }
  if (const Sequence* list = a.sequence())
    return list->kind == b.sequence()->kind && equal_items(work, list->items, b.sequence()->items);
  if (const Dict* dict = a.dict()) return equal_dicts(work, *dict, *b.dict());
  if (const Range* range = a.range()) return equal_ranges(*range, *b.range());
  if (a.is_none() || a.is_undefined()) return true;
  if (const Method* method = a.method())
    return method->name == b.method()->name && same_objects(method->self, b.method()->self);
  return same_objects(a, b);
}

bool less(Work& work, const Value& a, const Value& b, const char* sign) {
  return ordered(work, a, b, sign, false);
}
bool less_or_equal(Work& work, const Value& a, const Value& b, const char* sign) {
  return ordered(work, a, b, sign, true);
}

bool contains(Work& work, const Value& container, const Value& item) {
  if (const Text* text = container.text()) {
    refuse_undefined(work, item);
    const Text* part = item.text();
    if (part == nullptr)
      work.fail("'in <string>' requires string as left operand, not {}", item.type_name());
    return find_text(work, text->bytes, part->bytes, 0) != std::string_view::npos;
  }
  if (const Dict* dict = container.dict()) return dict->find(work, item) != nullptr;
  if (const Range* range = container.range(); range != nullptr && item.integer().has_value()) {
    // No element is further from 0 than this, and no distance of what is nearer overflows.
    constexpr std::int64_t kFurthest = 2 * kMostOfRange;
    if (*item.integer() < -kFurthest || *item.integer() > kFurthest) return false;
    const std::int64_t distance = *item.integer() - range->start;
    return distance % range->step == 0 && distance / range->step >= 0 &&
           distance / range->step < range->size();
  }
  const auto next = iterate(work, container, "argument of type '{}' is not iterable");
  for (Value element; next(element);)
    if (equal(work, item, element)) return true;
  return false;
}

bool same_object(Work& work, const Value& a, const Value& b) {
  if (a.storage().index() != b.storage().index()) return false;
  if (const bool* flag = a.get<bool>()) return *flag == *b.get<bool>();
  if (const auto* integer = a.get<std::int64_t>()) {
    if (*integer != *b.get<std::int64_t>()) return false;
    constexpr std::int64_t kFirstShared = -5, kLastShared = 256;
    if (*integer >= kFirstShared && *integer <= kLastShared) return true;
  }
  if (a.get<std::int64_t>() != nullptr || a.text() != nullptr || a.is<double>() || a.is_undefined())
    work.not_offered("the test sameas for values of type '{}', expected ==", a.type_name());
  return same_objects(a, b);
}

bool truth(Work& work, const Value& value) {
  if (const bool* flag = value.get<bool>()) return *flag;
  if (value.is_none() || value.is_undefined()) return false;
  if (const auto* integer = value.get<std::int64_t>()) return *integer != 0;
  if (const double* real = value.get<double>()) return *real != 0;
  if (const std::optional<std::size_t> size = size_of(work, value)) return *size != 0;
  return true;
}

bool is_hashable(Work& work, const Value& key) {
  work.spend(1);
  if (!may_be_key(key)) return false;
  const Sequence* tuple = key.sequence();
  return tuple == nullptr ||
         std::all_of(tuple->items.begin(), tuple->items.end(),
                     [&](const Value& item) { return is_hashable(work, item); });
}

std::size_t hash_of(std::string_view text) { return std::hash<std::string_view>()(text); }

std::size_t hash_of(Work& work, const Value& value) {
  work.spend(1);
  if (value.is_number()) return hash_of_number(value);
  if (const Text* text = value.text()) {
    work.spend_bytes(text->bytes.size());
    return hash_of(std::string_view(text->bytes));
  }
  if (value.is_none() || value.is_undefined()) return value.storage().index();
  if (!may_be_key(value)) work.fail("unhashable type: '{}'", value.type_name());
  const Sequence* tuple = value.sequence();
  if (tuple == nullptr) return value.storage().index();
  std::size_t hash = tuple->items.size();
  for (const Value& item : tuple->items) hash = mixed(hash, hash_of(work, item));
  return hash;
}

}  // namespace meshloom::text::chat
