// SPDX-License-Identifier: Apache-2.0
// NumberedItems: what a store keeps by name and tells page by page.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "daemon/control/stores/page_room.h"

namespace meshloom::control {

/// Items with an id(), or a name() that is one, numbered by order of creation. Whoever has it
/// guards it.
template <typename Item>
class NumberedItems {
 public:
  const Item* find(const std::string& id) const {
    const auto found = numbers_.find(id);
    return found == numbers_.end() ? nullptr : &items_.at(found->second);
  }
  /// By order of ids; at most `most` of them.
  std::vector<const Item*> beginning_with(std::string_view prefix, std::size_t most) const {
    std::vector<const Item*> found;
    for (auto at = numbers_.lower_bound(std::string(prefix));
         at != numbers_.end() && found.size() < most && at->first.starts_with(prefix); ++at)
      found.push_back(&items_.at(at->second));
    return found;
  }

  /// One whose id is there takes the place of that.
  void put(const Item& item) {
    const auto [place, fresh] = numbers_.try_emplace(id_of(item), next_number_);
    if (fresh) ++next_number_;
    items_[place->second] = item;
  }
  void erase(const std::string& id) {
    const auto found = numbers_.find(id);
    if (found == numbers_.end()) return;
    items_.erase(found->second);
    numbers_.erase(found);
  }

  /// Up to `size`, and no more than a page has room for, after position (0 at first), oldest first,
  /// as `tell` tells them, but for those of which it tells nothing; the position to go on from, 0
  /// at the end.
  template <typename Tell>
  auto page(std::int64_t position, int size, const Tell& tell) const {
    return page_of(items_, position, size, tell);
  }

  /// By number.
  const std::map<std::int64_t, Item>& items() const { return items_; }
  std::size_t size() const { return items_.size(); }

 private:
  static const std::string& id_of(const Item& item) {
    if constexpr (requires { item.id(); })
      return item.id();
    else
      return item.name();
  }

  std::map<std::int64_t, Item> items_;
  std::map<std::string, std::int64_t> numbers_;
  std::int64_t next_number_ = 1;
};

}  // namespace meshloom::control
