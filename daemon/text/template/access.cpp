// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <limits>

#include "daemon/text/template/comparison.h"
#include "daemon/text/template/iteration.h"
#include "daemon/text/template/loop.h"
#include "daemon/text/template/methods.h"
#include "daemon/text/template/operators.h"
#include "daemon/text/template/python_text.h"
#include "daemon/text/template/text_form.h"
#include "daemon/text/template/work.h"
#include "daemon/text/utf8.h"

namespace meshloom::text::chat {
namespace {

std::string shortened(std::string_view text) {
  constexpr std::size_t kMost = 60;
  if (text.size() <= kMost) return std::string(text);
  std::size_t end = kMost;
  while (end > 0 && (static_cast<unsigned char>(text[end]) & 0xC0) == 0x80) --end;
  return std::string(text.substr(0, end)) + "...";
}

Value no_attribute(const Value& object, std::string_view name) {
  return make_undefined(fmt::format("'{}' has no attribute '{}'",
                                    object.is_none() ? "None" : object.type_name(),
                                    shortened(name)));
}

Value no_item(Work& work, const Value& object, const Value& key) {
  if (const Text* text = key.text()) return no_attribute(object, text->bytes);
  std::string repr = fmt::format("of type '{}'", key.type_name());
  if (key.is_number()) {
    repr.clear();
    append_repr(work, repr, key);
  }
  return make_undefined(fmt::format("{} has no element {}", object.type_name(), repr));
}

Value unsafe(const Value& object, std::string_view name) {
  return make_undefined(fmt::format("access to attribute '{}' of '{}' object is unsafe.",
                                    shortened(name), object.type_name()));
}

/// The element number `index` of so many, where negative ones count from the end.
std::optional<std::size_t> place_of(std::int64_t index, std::size_t size) {
  const auto count = static_cast<std::int64_t>(size);
  if (index < 0) index += count;
  if (index < 0 || index >= count) return std::nullopt;
  return static_cast<std::size_t>(index);
}

Value character(Work& work, const Text& text, std::size_t index) {
  if (text.is_ascii()) return make_text(work, std::string(1, text.bytes[index]), text.markup);
  work.spend(1 + text.bytes.size() / 4);
  std::size_t at = 0;
  while (index-- > 0) at += utf8_length(text.bytes[at]);
  return make_text(work, text.bytes.substr(at, utf8_length(text.bytes[at])), text.markup);
}

/// What stands under the key, or nothing.
std::optional<Value> subscript(Work& work, const Value& object, const Value& key) {
  if (const Dict* dict = object.dict()) {
    const bool is_no_key = key.dict() != nullptr || key.sequence() != nullptr;
    if (is_no_key && !is_hashable(work, key)) return std::nullopt;
    const Value* value = dict->find(work, key);
    return value == nullptr ? std::nullopt : std::optional<Value>(*value);
  }
  const std::optional<std::int64_t> index = key.integer();
  if (!index.has_value()) return std::nullopt;
  if (const Text* text = object.text()) {
    const auto place = place_of(*index, text->length);
    return place ? std::optional(character(work, *text, *place)) : std::nullopt;
  }
  if (const Sequence* list = object.sequence(); list && list->kind <= Sequence::Kind::kTuple) {
    const auto place = place_of(*index, list->items.size());
    return place ? std::optional(list->items[*place]) : std::nullopt;
  }
  if (const Range* range = object.range()) {
    const auto place = place_of(*index, static_cast<std::size_t>(range->size()));
    return place ? std::optional<Value>(range->at(static_cast<std::int64_t>(*place)))
                 : std::nullopt;
  }
  return std::nullopt;
}

/// Bounds of a slice of so many elements, as Python's slice.indices() has them.
struct Bounds {
  std::int64_t start, stop, step;
};

std::optional<std::int64_t> bound(Work& work, const Value* value) {
  if (value == nullptr || value->is_none()) return std::nullopt;
  refuse_undefined(work, *value);
  const std::optional<std::int64_t> index = value->integer();
  if (!index.has_value()) work.fail("slice indices must be integers or None");
  return index;
}

Bounds bounds_of(Work& work, std::size_t size, const Value* start, const Value* stop,
                 const Value* step) {
  const auto count = static_cast<std::int64_t>(size);
  // A step beyond all elements takes the first alone, as one of their number does.
  const std::int64_t wanted = bound(work, step).value_or(1);
  if (wanted == 0) work.fail("slice step cannot be zero");
  const std::int64_t by = std::clamp(wanted, -count - 1, count + 1);
  const std::int64_t lowest = by < 0 ? -1 : 0, highest = by < 0 ? count - 1 : count;
  const auto fitted = [&](const Value* value, std::int64_t otherwise) {
    const std::optional<std::int64_t> index = bound(work, value);
    if (!index.has_value()) return otherwise;
    return std::clamp(*index < 0 ? *index + count : *index, lowest, highest);
  };
  return {fitted(start, by < 0 ? highest : lowest), fitted(stop, by < 0 ? lowest : highest), by};
}

}  // namespace

std::optional<Value> own_attribute(Work& work, const Value& object, std::string_view name) {
  refuse_undefined(work, object);
  if (Namespace* names = object.name_space()) {
    const Value* value = names->find(name);
    return value == nullptr ? std::nullopt : std::optional<Value>(*value);
  }
  if (name.starts_with("__") && name.ends_with("__")) return unsafe(object, name);
  if (Loop* loop = object.loop()) {
    if (std::optional<Value> value = loop_attribute(work, *loop, name)) return value;
  }
  switch (method_kind(object, name)) {
    case MethodKind::kNone: return std::nullopt;
    case MethodKind::kChanges: return unsafe(object, name);
    case MethodKind::kNotOffered:
      work.not_offered("the attribute '{}' of a value of type '{}'", name, object.type_name());
    case MethodKind::kOffered: break;
  }
  return make_method(work, object, name);
}

Value item(Work& work, const Value& object, const Value& key) {
  work.spend(1);
  refuse_undefined(work, object);
  if (std::optional<Value> value = subscript(work, object, key)) return *std::move(value);
  if (const Text* name = key.text())
    if (std::optional<Value> value = own_attribute(work, object, name->bytes))
      return *std::move(value);
  return no_item(work, object, key);
}

Value attribute(Work& work, const Value& object, std::string_view name) {
  work.spend(1);
  if (std::optional<Value> value = own_attribute(work, object, name)) return *std::move(value);
  if (const Dict* dict = object.dict())
    if (const Value* value = dict->find(work, name)) return *value;
  return no_attribute(object, name);
}

Value slice(Work& work, const Value& object, const Value* start, const Value* stop,
            const Value* step) {
  work.spend(1);
  refuse_undefined(work, object);
  if (const Text* text = object.text()) {
    const Bounds b = bounds_of(work, text->length, start, stop, step);
    return make_text(work, slice_text(work, text->bytes, text->length, b.start, b.stop, b.step),
                     text->markup);
  }
  if (const Sequence* list = object.sequence(); list && list->kind <= Sequence::Kind::kTuple) {
    const Bounds b = bounds_of(work, list->items.size(), start, stop, step);
    Values items;
    for (std::int64_t i = b.start; b.step > 0 ? i < b.stop : i > b.stop; i += b.step)
      append(work, items, list->items[static_cast<std::size_t>(i)]);
    return make_sequence(work, list->kind, std::move(items));
  }
  if (const Range* range = object.range()) {
    const Bounds b = bounds_of(work, static_cast<std::size_t>(range->size()), start, stop, step);
    Range part{range->at(b.start), range->at(b.stop), 1};
    if (__builtin_mul_overflow(range->step, b.step, &part.step) ||
        std::abs(part.step) > kMostOfRange)
      work.too_large("the step of a range is beyond 2^60");
    return std::make_shared<const Range>(part);
  }
  work.fail("'{}' object is not subscriptable by a slice", object.type_name());
}

}  // namespace meshloom::text::chat
