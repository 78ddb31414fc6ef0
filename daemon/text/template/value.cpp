// SPDX-License-Identifier: Apache-2.0
#include "daemon/text/template/value.h"

#include <algorithm>

#include "daemon/text/template/characters.h"
#include "daemon/text/template/comparison.h"
#include "daemon/text/template/loop.h"
#include "daemon/text/template/work.h"

namespace meshloom::text::chat {
namespace {

/// Bytes of an object besides what it holds.
constexpr std::uint64_t kObjectBytes = 64;
/// Values inside each other; conversations have about ten.
constexpr int kMostValueDepth = 200;

constexpr const char* kSequenceTypes[] = {"list", "tuple", "dict_keys", "dict_values",
                                          "dict_items"};

struct DepthOf {
  int operator()(const std::shared_ptr<const Sequence>& value) const { return value->depth; }
  int operator()(const std::shared_ptr<const Dict>& value) const { return value->depth(); }
  int operator()(const std::shared_ptr<Iterator>& value) const { return value->depth; }
  int operator()(const std::shared_ptr<Loop>& value) const { return value->depth; }
  int operator()(const std::shared_ptr<const Method>& value) const {
    return value->self.depth() + 1;
  }
  template <typename Other>
  int operator()(const Other&) const {
    return 0;
  }
};

struct TypeName {
  const char* operator()(Missing) const { return "missing"; }
  const char* operator()(None) const { return "NoneType"; }
  const char* operator()(const Undefined&) const { return "Undefined"; }
  const char* operator()(bool) const { return "bool"; }
  const char* operator()(std::int64_t) const { return "int"; }
  const char* operator()(double) const { return "float"; }
  const char* operator()(const std::shared_ptr<const Text>& text) const {
    return text->markup ? "Markup" : "str";
  }
  const char* operator()(const std::shared_ptr<const Sequence>& value) const {
    return kSequenceTypes[static_cast<int>(value->kind)];
  }
  const char* operator()(const std::shared_ptr<const Dict>&) const { return "dict"; }
  const char* operator()(const std::shared_ptr<const Range>&) const { return "range"; }
  const char* operator()(const std::shared_ptr<Iterator>& value) const { return value->type_name; }
  const char* operator()(const std::shared_ptr<Namespace>&) const { return "Namespace"; }
  const char* operator()(const std::shared_ptr<Loop>&) const { return "LoopContext"; }
  const char* operator()(const std::shared_ptr<const Macro>&) const { return "Macro"; }
  const char* operator()(const std::shared_ptr<const Method>&) const { return "method"; }
  const char* operator()(Function) const { return "function"; }
};

}  // namespace

std::optional<std::int64_t> Value::integer() const {
  if (const auto* number = get<std::int64_t>()) return *number;
  if (const auto* flag = get<bool>()) return *flag ? 1 : 0;
  return std::nullopt;
}

int Value::depth() const { return std::visit(DepthOf(), storage_); }
const char* Value::type_name() const { return std::visit(TypeName(), storage_); }

std::int64_t Range::size() const {
  if (step > 0) return start < stop ? (stop - start - 1) / step + 1 : 0;
  return start > stop ? (start - stop - 1) / -step + 1 : 0;
}

Value* Namespace::find(std::string_view name) {
  const auto found = std::find_if(attributes.begin(), attributes.end(),
                                  [&](const auto& attribute) { return attribute.first == name; });
  return found == attributes.end() ? nullptr : &found->second;
}

int depth_around(Work& work, int depth) {
  if (depth >= kMostValueDepth)
    work.too_large("a value has more than {} levels of lists and dicts", kMostValueDepth);
  return depth + 1;
}

void append(Work& work, Values& values, Value value) {
  work.spend(1);
  work.check_bytes((values.size() + 1) * sizeof(Value));
  values.push_back(std::move(value));
}

Value make_text(Work& work, std::string bytes, bool markup) {
  work.spend_bytes(bytes.size());
  auto text = std::make_shared<Text>();
  text->hold.emplace(work.budget(), bytes.size() + kObjectBytes, "chat template");
  text->length = count_characters(bytes);
  text->bytes = std::move(bytes);
  text->markup = markup;
  return std::shared_ptr<const Text>(std::move(text));
}

Value constant_text(std::string bytes) {
  auto text = std::make_shared<Text>();
  text->length = count_characters(bytes);
  text->bytes = std::move(bytes);
  return std::shared_ptr<const Text>(std::move(text));
}

Value make_sequence(Work& work, Sequence::Kind kind, Values items) {
  work.spend(1 + items.size());
  auto sequence = std::make_shared<Sequence>();
  int depth = 0;
  for (const Value& item : items) depth = std::max(depth, item.depth());
  sequence->depth = depth_around(work, depth);
  sequence->hold.emplace(work.budget(), items.size() * sizeof(Value) + kObjectBytes,
                         "chat template");
  sequence->kind = kind;
  sequence->items = std::move(items);
  return std::shared_ptr<const Sequence>(std::move(sequence));
}

Value make_dict(Work& work, Dict dict) {
  dict.hold(work);
  return std::make_shared<const Dict>(std::move(dict));
}

Value make_iterator(Work& work, std::function<bool(Value&)> next, int depth) {
  auto iterator = std::make_shared<Iterator>();
  iterator->next = std::move(next);
  iterator->depth = depth_around(work, depth);
  return iterator;
}

Value make_undefined(std::string why) {
  return Undefined{std::make_shared<const std::string>(std::move(why))};
}

}  // namespace meshloom::text::chat
