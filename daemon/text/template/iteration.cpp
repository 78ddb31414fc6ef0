// SPDX-License-Identifier: Apache-2.0
#include "daemon/text/template/iteration.h"

#include "daemon/text/template/loop.h"
#include "daemon/text/template/work.h"
#include "daemon/text/utf8.h"

namespace meshloom::text::chat {
namespace {

Next characters(Work& work, std::shared_ptr<const Text> text) {
  return [&work, text = std::move(text), at = std::size_t{0}](Value& value) mutable {
    if (at == text->bytes.size()) return false;
    const std::size_t size = utf8_length(text->bytes[at]);
    value = make_text(work, text->bytes.substr(at, size));
    at += size;
    return true;
  };
}

Next elements(Work& work, std::shared_ptr<const Sequence> sequence) {
  return [&work, sequence = std::move(sequence), i = std::size_t{0}](Value& value) mutable {
    if (i == sequence->items.size()) return false;
    work.spend(1);
    value = sequence->items[i++];
    return true;
  };
}

Next keys(Work& work, std::shared_ptr<const Dict> dict) {
  return [&work, dict = std::move(dict), i = std::size_t{0}](Value& value) mutable {
    if (i == dict->entries().size()) return false;
    work.spend(1);
    value = dict->entries()[i++].first;
    return true;
  };
}

Next numbers(Work& work, std::shared_ptr<const Range> range) {
  return [&work, range = std::move(range), i = std::int64_t{0}](Value& value) mutable {
    if (i == range->size()) return false;
    work.spend(1);
    value = range->at(i++);
    return true;
  };
}

}  // namespace

Next iterate(Work& work, const Value& value, const char* error) {
  if (const auto* text = value.get<std::shared_ptr<const Text>>()) return characters(work, *text);
  if (const auto* list = value.get<std::shared_ptr<const Sequence>>()) return elements(work, *list);
  if (const auto* dict = value.get<std::shared_ptr<const Dict>>()) return keys(work, *dict);
  if (const auto* range = value.get<std::shared_ptr<const Range>>()) return numbers(work, *range);
  if (const auto* iterator = value.get<std::shared_ptr<Iterator>>())
    return [&work, iterator = *iterator](Value& element) {
      const Work::Level level(work);
      work.spend(1);
      return iterator->next(element);
    };
  if (value.is_undefined()) return [](Value&) { return false; };
  if (value.loop() != nullptr) work.not_offered("a loop over the variable loop itself");
  work.fail("{}", fmt::format(fmt::runtime(error), value.type_name()));
}

bool is_iterable(const Value& value) {
  return value.text() != nullptr || value.sequence() != nullptr || value.dict() != nullptr ||
         value.range() != nullptr || value.iterator() != nullptr || value.is_undefined() ||
         value.loop() != nullptr;
}

Values elements_of(Work& work, const Value& value) {
  const Next next = iterate(work, value);
  Values values;
  for (Value element; next(element);) append(work, values, element);
  return values;
}

std::optional<std::size_t> size_of(Work& work, const Value& value) {
  if (const Text* text = value.text()) return text->length;
  if (const Sequence* list = value.sequence()) return list->items.size();
  if (const Dict* dict = value.dict()) return dict->entries().size();
  if (const Range* range = value.range()) return static_cast<std::size_t>(range->size());
  if (value.is_undefined()) return 0;
  if (Loop* loop = value.loop()) return loop->length(work);
  return std::nullopt;
}

std::size_t length_of(Work& work, const Value& value) {
  const std::optional<std::size_t> size = size_of(work, value);
  if (!size.has_value()) work.fail("object of type '{}' has no len()", value.type_name());
  return *size;
}

void refuse_undefined(Work& work, const Value& value) {
  if (const auto* undefined = value.get<Undefined>()) work.fail("{}", *undefined->why);
}

}  // namespace meshloom::text::chat
