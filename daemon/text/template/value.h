// SPDX-License-Identifier: Apache-2.0
// Value: what an expression of a template gives, as Python has it. Values do not change, but for
// the attributes of namespaces and iterators that move on.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "daemon/text/budget.h"

namespace meshloom::text::chat {

class Value;
class Work;
struct Text;
struct Sequence;
class Dict;
struct Range;
struct Iterator;
struct Namespace;
struct Loop;
struct Macro;
struct Method;
struct Frame;

/// Missing is a variable that nothing was assigned to; no expression gives it.
struct Missing {};
struct None {};
/// Jinja gives this for a name, an attribute or an item that there is not.
struct Undefined {
  /// The text says why, for the error of whoever uses it.
  std::shared_ptr<const std::string> why;
};
/// Function lists functions that every template may call.
enum class Function { kRange, kDict, kNamespace, kRaiseException, kStrftimeNow };

class Value {
 public:
  using Storage =
      std::variant<Missing, None, Undefined, bool, std::int64_t, double,
                   std::shared_ptr<const Text>, std::shared_ptr<const Sequence>,
                   std::shared_ptr<const Dict>, std::shared_ptr<const Range>,
                   std::shared_ptr<Iterator>, std::shared_ptr<Namespace>, std::shared_ptr<Loop>,
                   std::shared_ptr<const Macro>, std::shared_ptr<const Method>, Function>;

  Value() = default;
  template <typename T>
  requires(!std::is_same_v<std::remove_cvref_t<T>, Value> && std::is_constructible_v<Storage, T&&>)
      Value(T&& value)
      : storage_(std::forward<T>(value)) {}  // NOLINT: values are written as such

  const Storage& storage() const { return storage_; }
  template <typename T>
  bool is() const {
    return std::holds_alternative<T>(storage_);
  }
  template <typename T>
  const T* get() const {
    return std::get_if<T>(&storage_);
  }

  bool is_missing() const { return is<Missing>(); }
  bool is_undefined() const { return is<Undefined>(); }
  bool is_none() const { return is<None>(); }
  bool is_number() const { return is<bool>() || is<std::int64_t>() || is<double>(); }

  // --- The object, or null where it is another kind.
  const Text* text() const { return object<std::shared_ptr<const Text>>(); }
  const Sequence* sequence() const { return object<std::shared_ptr<const Sequence>>(); }
  const Dict* dict() const { return object<std::shared_ptr<const Dict>>(); }
  const Range* range() const { return object<std::shared_ptr<const Range>>(); }
  Iterator* iterator() const { return object<std::shared_ptr<Iterator>>(); }
  Namespace* name_space() const { return object<std::shared_ptr<Namespace>>(); }
  Loop* loop() const { return object<std::shared_ptr<Loop>>(); }
  const Macro* macro() const { return object<std::shared_ptr<const Macro>>(); }
  const Method* method() const { return object<std::shared_ptr<const Method>>(); }

  /// Returns an int, or a bool as one.
  std::optional<std::int64_t> integer() const;
  /// Returns how many levels of objects it has, which end at namespaces and macros.
  int depth() const;
  /// Returns the name of its type, as Python calls it.
  const char* type_name() const;

 private:
  template <typename Pointer>
  auto object() const -> decltype(std::declval<const Pointer&>().get()) {
    const Pointer* pointer = get<Pointer>();
    return pointer == nullptr ? nullptr : pointer->get();
  }

  Storage storage_;
};

using Values = std::vector<Value>;

/// Text is a str: UTF-8. `markup`: what the filters safe and escape give, which escapes what is
/// added to it.
struct Text {
  std::string bytes;
  std::size_t length = 0;  ///< in characters
  bool markup = false;
  std::optional<Budget::Hold> hold;

  bool is_ascii() const { return length == bytes.size(); }
};

/// Sequence is a list or another type with elements in order.
struct Sequence {
  enum class Kind { kList, kTuple, kDictKeys, kDictValues, kDictItems };

  Kind kind = Kind::kList;
  Values items;
  int depth = 1;
  std::optional<Budget::Hold> hold;
};

/// Dict is a dict in the order of its keys' first assignments.
class Dict {
 public:
  using Entry = std::pair<Value, Value>;

  const std::vector<Entry>& entries() const { return entries_; }
  /// Returns null where it does not have the key; throws for what is no key of a dict.
  const Value* find(Work& work, const Value& key) const;
  const Value* find(Work& work, std::string_view key) const;
  int depth() const { return depth_; }

  /// Adds an entry or gives it another value. Throws for what is no key (a list, a dict).
  void assign(Work& work, Value key, Value value);
  /// Accounts for its memory, behind the last assignment.
  void hold(Work& work);

 private:
  /// Returns the place of the first entry with the hash that `same` says is the one; its end where
  /// there is none.
  template <typename Same>
  std::size_t place_of(Work& work, std::size_t hash, Same&& same) const;
  void enter(std::size_t hash, std::size_t place);
  void grow_table(Work& work);

  std::vector<Entry> entries_;
  /// Places by the hash of keys, from a number of entries on.
  std::vector<std::pair<std::size_t, std::uint32_t>> table_;
  int depth_ = 1;
  std::unique_ptr<Budget::Hold> hold_;
};

/// Bounds and steps of ranges are at most this far from 0, so that sums of some fit 64 bits.
inline constexpr std::int64_t kMostOfRange = std::int64_t{1} << 60;
struct Range {
  std::int64_t start = 0, stop = 0, step = 1;

  std::int64_t size() const;
  std::int64_t at(std::int64_t index) const { return start + index * step; }
};

/// Iterator gives elements that are made one by one, once: what filters such as map and select
/// give.
struct Iterator {
  std::function<bool(Value&)> next;
  int depth = 1;
  const char* type_name = "generator";
};

struct Namespace {
  std::vector<std::pair<std::string, Value>> attributes;

  Value* find(std::string_view name);
};

/// Method is a method of a value, which may be called.
struct Method {
  Value self;
  std::string name;
};

/// The names of a part of a template hold these values while it runs; names further out are in
/// `parent`.
struct Frame {
  Values slots;
  std::shared_ptr<Frame> parent;
  std::optional<Budget::Hold> hold;  ///< of the slots
};

/// Appends one more value of many, whose number nobody knows.
void append(Work& work, Values& values, Value value);

// --- Making values. Each pays for its bytes, and throws where they are too many or too deep.

Value make_text(Work& work, std::string bytes, bool markup = false);
Value make_sequence(Work& work, Sequence::Kind kind, Values items);
inline Value make_list(Work& work, Values items) {
  return make_sequence(work, Sequence::Kind::kList, std::move(items));
}
inline Value make_tuple(Work& work, Values items) {
  return make_sequence(work, Sequence::Kind::kTuple, std::move(items));
}
Value make_dict(Work& work, Dict dict);
/// `depth` is that of the deepest value it takes its elements from.
Value make_iterator(Work& work, std::function<bool(Value&)> next, int depth);
Value make_undefined(std::string why);
/// Makes a text that belongs to the template.
Value constant_text(std::string bytes);

/// Throws where a value around one of the depth would be too deep.
int depth_around(Work& work, int depth);

}  // namespace meshloom::text::chat
