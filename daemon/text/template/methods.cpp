// SPDX-License-Identifier: Apache-2.0
#include "daemon/text/template/methods.h"

#include <algorithm>
#include <span>

#include "daemon/text/template/comparison.h"
#include "daemon/text/template/iteration.h"
#include "daemon/text/template/loop.h"
#include "daemon/text/template/work.h"

namespace meshloom::text::chat {
namespace {

using Names = std::span<const std::string_view>;

constexpr std::string_view kOfList[] = {"copy", "count", "index"};
constexpr std::string_view kOfTuple[] = {"count", "index"};
constexpr std::string_view kOfDict[] = {"copy", "get", "items", "keys", "values"};
constexpr std::string_view kOfLoop[] = {"changed", "cycle"};

constexpr std::string_view kChangesList[] = {"append", "clear",  "extend",  "insert",
                                             "pop",    "remove", "reverse", "sort"};
constexpr std::string_view kChangesDict[] = {"clear", "pop", "popitem", "setdefault", "update"};

constexpr std::string_view kLeftOutOfText[] = {
    "casefold",  "encode",     "format_map", "isprintable", "isidentifier", "maketrans",
    "translate", "expandtabs", "unescape",   "striptags",   "escape"};
constexpr std::string_view kLeftOutOfDict[] = {"fromkeys"};
constexpr std::string_view kLeftOutOfView[] = {"isdisjoint", "mapping"};
constexpr std::string_view kLeftOutOfRange[] = {"count", "index", "start", "stop", "step"};
constexpr std::string_view kLeftOutOfNumber[] = {
    "as_integer_ratio", "bit_count", "bit_length", "conjugate", "denominator",
    "from_bytes",       "fromhex",   "hex",        "imag",      "is_integer",
    "numerator",        "real",      "to_bytes"};
constexpr std::string_view kLeftOutOfIterator[] = {"close", "send", "throw"};
constexpr std::string_view kLeftOutOfMacro[] = {"arguments", "caller",        "catch_kwargs",
                                                "name",      "catch_varargs", "explicit_caller"};

bool has(Names names, std::string_view name) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

MethodKind kind_among(std::string_view name, Names offered, Names changes, Names left_out) {
  if (has(offered, name)) return MethodKind::kOffered;
  if (has(changes, name)) return MethodKind::kChanges;
  return has(left_out, name) ? MethodKind::kNotOffered : MethodKind::kNone;
}

Value call_dict_method(Work& work, const Dict& dict, std::string_view name,
                       const Arguments& arguments) {
  if (name == "get") {
    if (!arguments.named.empty()) work.fail("get() takes no keyword arguments");
    const Parameters parameters(work, "get", arguments, {"key", "default"}, 1);
    if (const Value* value = dict.find(work, *parameters.at(0))) return *value;
    return parameters.at(1) == nullptr ? Value(None()) : *parameters.at(1);
  }
  const Parameters none(work, name, arguments, {});
  if (name == "copy") {
    Dict copy;
    for (const auto& [key, value] : dict.entries()) copy.assign(work, key, value);
    return make_dict(work, std::move(copy));
  }
  Values items;
  for (const auto& [key, value] : dict.entries())
    append(work, items,
           name == "items"  ? make_tuple(work, {key, value})
           : name == "keys" ? key
                            : value);
  return make_sequence(work,
                       name == "items"  ? Sequence::Kind::kDictItems
                       : name == "keys" ? Sequence::Kind::kDictKeys
                                        : Sequence::Kind::kDictValues,
                       std::move(items));
}

Value call_list_method(Work& work, const Sequence& list, std::string_view name,
                       const Arguments& arguments) {
  if (name == "copy") {
    const Parameters none(work, name, arguments, {});
    return make_sequence(work, list.kind, list.items);
  }
  if (name == "count") {
    const Parameters parameters(work, name, arguments, {"value"}, 1);
    return static_cast<std::int64_t>(
        std::count_if(list.items.begin(), list.items.end(),
                      [&](const Value& item) { return equal(work, item, *parameters.at(0)); }));
  }
  const Parameters parameters(work, name, arguments, {"value", "start", "stop"}, 1);
  const auto size = static_cast<std::int64_t>(list.items.size());
  const auto bound = [&](std::size_t i, std::int64_t otherwise) {
    const std::int64_t index = parameters.integer(i, otherwise);
    return std::clamp(index < 0 ? index + size : index, std::int64_t{0}, size);
  };
  for (std::int64_t i = bound(1, 0); i < bound(2, size); ++i)
    if (equal(work, list.items[static_cast<std::size_t>(i)], *parameters.at(0))) return i;
  work.fail("the value is not in the {}", list.kind == Sequence::Kind::kList ? "list" : "tuple");
}

Value call_loop_method(Work& work, Loop& loop, std::string_view name, const Arguments& arguments) {
  if (!arguments.named.empty()) work.fail("{}() takes no keyword arguments", name);
  if (name == "cycle") {
    if (arguments.positional.empty()) work.fail("no items for cycling given");
    return arguments
        .positional[static_cast<std::size_t>(loop.index0) % arguments.positional.size()];
  }
  if (arguments.depth() >= loop.depth) work.not_offered("loop.changed() of nested values");
  if (loop.changed_from.has_value()) {
    const Values& before = *loop.changed_from;
    bool same = before.size() == arguments.positional.size();
    for (std::size_t i = 0; same && i < before.size(); ++i)
      same = equal(work, before[i], arguments.positional[i]);
    if (same) return false;
  }
  loop.changed_from = arguments.positional;
  return true;
}

}  // namespace

MethodKind method_kind(const Value& object, std::string_view name) {
  if (object.text() != nullptr)
    return has_text_method(name) ? MethodKind::kOffered : kind_among(name, {}, {}, kLeftOutOfText);
  if (object.dict() != nullptr) return kind_among(name, kOfDict, kChangesDict, kLeftOutOfDict);
  if (const Sequence* list = object.sequence()) {
    if (list->kind == Sequence::Kind::kList) return kind_among(name, kOfList, kChangesList, {});
    if (list->kind == Sequence::Kind::kTuple) return kind_among(name, kOfTuple, {}, {});
    return kind_among(name, {}, {}, kLeftOutOfView);
  }
  if (object.range() != nullptr) return kind_among(name, {}, {}, kLeftOutOfRange);
  if (object.is_number()) return kind_among(name, {}, {}, kLeftOutOfNumber);
  if (object.iterator() != nullptr) return kind_among(name, {}, {}, kLeftOutOfIterator);
  if (object.loop() != nullptr) return kind_among(name, kOfLoop, {}, {});
  if (object.macro() != nullptr) return kind_among(name, {}, {}, kLeftOutOfMacro);
  return MethodKind::kNone;
}

Value make_method(Work& work, const Value& object, std::string_view name) {
  work.spend(1);
  depth_around(work, object.depth());
  return std::make_shared<const Method>(Method{object, std::string(name)});
}

Value call_method(Work& work, const Method& method, const Arguments& arguments) {
  work.spend(1);
  const Value& self = method.self;
  if (self.text() != nullptr) return call_text_method(work, self, method.name, arguments);
  if (const Dict* dict = self.dict()) return call_dict_method(work, *dict, method.name, arguments);
  if (const Sequence* list = self.sequence())
    return call_list_method(work, *list, method.name, arguments);
  return call_loop_method(work, *self.loop(), method.name, arguments);
}

}  // namespace meshloom::text::chat
