// SPDX-License-Identifier: Apache-2.0
// PageRoom: what one page of a list may hold.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <type_traits>
#include <utility>
#include <vector>

namespace meshloom::control {

/// So many items as were asked for, and no more bytes than clients take that have set no limit of
/// their own (4 MiB). All lists fill their pages by it.
class PageRoom {
 public:
  static constexpr std::size_t kBytes = 2 << 20;

  explicit PageRoom(int items) : items_(items) {}

  /// Takes room for one more; false if it is to begin the next page. A page that is empty takes any
  /// item: whoever keeps one sees to it that it is no larger than kBytes.
  template <typename Message>
  bool take(const Message& item) {
    const std::size_t bytes = item.ByteSizeLong() + kFrame;
    if (taken_ == items_ || (taken_ > 0 && bytes_ + bytes > kBytes)) return false;
    ++taken_;
    bytes_ += bytes;
    return true;
  }

 private:
  static constexpr std::size_t kFrame = 6;  ///< tag and length of an item in its list

  int items_;
  int taken_ = 0;
  std::size_t bytes_ = 0;
};

/// Of what a map holds by position: a page of those behind `position` (0 at first), oldest first,
/// as `tell` tells them, without those of which it tells nothing; the position to go on from, 0 at
/// the end.
template <typename Items, typename Tell>
auto page_of(const Items& items, std::int64_t position, int size, const Tell& tell) {
  using Told = typename std::invoke_result_t<Tell, const typename Items::mapped_type&>::value_type;
  std::pair<std::vector<Told>, std::int64_t> page{{}, position};
  PageRoom room(size);
  for (auto at = items.upper_bound(position); at != items.end(); ++at) {
    std::optional<Told> one = tell(at->second);
    if (!one) continue;
    if (!room.take(*one)) return page;
    page.first.push_back(*std::move(one));
    page.second = at->first;
  }
  page.second = 0;
  return page;
}

}  // namespace meshloom::control
