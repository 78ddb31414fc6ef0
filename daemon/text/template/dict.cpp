// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "daemon/text/template/comparison.h"
#include "daemon/text/template/value.h"
#include "daemon/text/template/work.h"

namespace meshloom::text::chat {
namespace {

/// Entries that are looked at one by one.
constexpr std::size_t kWithoutTable = 8;
/// In the table: nothing is here. Other entries hold their place and one.
constexpr std::uint32_t kEmpty = 0;

}  // namespace

template <typename Same>
std::size_t Dict::place_of(Work& work, std::size_t hash, Same&& same) const {
  if (table_.empty()) {
    work.spend(1 + entries_.size() / 4);
    for (std::size_t i = 0; i < entries_.size(); ++i)
      if (same(entries_[i].first)) return i;
    return entries_.size();
  }
  const std::size_t mask = table_.size() - 1;
  for (std::size_t at = hash & mask; table_[at].second != kEmpty; at = (at + 1) & mask) {
    work.spend(1);
    const std::size_t place = table_[at].second - 1;
    if (table_[at].first == hash && same(entries_[place].first)) return place;
  }
  return entries_.size();
}

const Value* Dict::find(Work& work, const Value& key) const {
  if (const Text* text = key.text()) return find(work, text->bytes);
  const std::size_t place = place_of(work, hash_of(work, key),
                                     [&](const Value& other) { return equal(work, key, other); });
  return place == entries_.size() ? nullptr : &entries_[place].second;
}

const Value* Dict::find(Work& work, std::string_view key) const {
  const std::size_t hash = table_.empty() ? 0 : hash_of(key);
  const std::size_t place = place_of(work, hash, [&](const Value& other) {
    const Text* text = other.text();
    return text != nullptr && text->bytes == key;
  });
  return place == entries_.size() ? nullptr : &entries_[place].second;
}

void Dict::assign(Work& work, Value key, Value value) {
  const std::size_t hash = hash_of(work, key);
  const std::size_t place =
      place_of(work, hash, [&](const Value& other) { return equal(work, key, other); });
  depth_ = std::max(depth_, depth_around(work, std::max(key.depth(), value.depth())));
  if (place < entries_.size()) {
    entries_[place].second = std::move(value);
    return;
  }
  work.check_bytes((entries_.size() + 1) * sizeof(Entry));
  entries_.emplace_back(std::move(key), std::move(value));
  if (entries_.size() <= kWithoutTable) return;
  if (2 * entries_.size() > table_.size())
    grow_table(work);
  else
    enter(hash, entries_.size() - 1);
}

void Dict::enter(std::size_t hash, std::size_t place) {
  const std::size_t mask = table_.size() - 1;
  std::size_t at = hash & mask;
  while (table_[at].second != kEmpty) at = (at + 1) & mask;
  table_[at] = {hash, static_cast<std::uint32_t>(place + 1)};
}

void Dict::grow_table(Work& work) {
  const std::size_t size = std::max<std::size_t>(4 * kWithoutTable, 2 * table_.size());
  table_.assign(size, {0, kEmpty});
  for (std::size_t i = 0; i < entries_.size(); ++i) enter(hash_of(work, entries_[i].first), i);
}

void Dict::hold(Work& work) {
  work.spend(1);
  constexpr std::uint64_t kDictBytes = 96;
  hold_ = std::make_unique<Budget::Hold>(
      work.budget(), kDictBytes + entries_.size() * sizeof(Entry) + table_.size() * 16,
      "chat template");
}

}  // namespace meshloom::text::chat
