// SPDX-License-Identifier: Apache-2.0
#include "daemon/train/data/sample_packing.h"

#include <algorithm>
#include <deque>
#include <map>
#include <numeric>

#include "kernels/base/error.h"

namespace meshloom::train {

std::vector<std::vector<std::int64_t>> pack_texts(std::span<const std::int64_t> lengths,
                                                  std::int64_t capacity) {
  const auto length_of = [&](std::int64_t text) { return lengths[static_cast<std::size_t>(text)]; };
  std::vector<std::int64_t> order(lengths.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(),
                   [&](std::int64_t a, std::int64_t b) { return length_of(a) > length_of(b); });
  std::vector<std::vector<std::int64_t>> samples;
  std::map<std::int64_t, std::deque<std::size_t>> by_room;
  for (const std::int64_t text : order) {
    const std::int64_t length = length_of(text);
    check_internal(length >= 1 && length <= capacity, "pack: a text of {} positions, of {}", length,
                   capacity);
    std::int64_t room = capacity;
    std::size_t sample = samples.size();
    if (const auto fits = by_room.lower_bound(length); fits != by_room.end()) {
      room = fits->first;
      sample = fits->second.front();
      fits->second.pop_front();
      if (fits->second.empty()) by_room.erase(fits);
    } else {
      samples.emplace_back();
    }
    samples[sample].push_back(text);
    if (room > length) by_room[room - length].push_back(sample);
  }
  for (auto& texts : samples) std::sort(texts.begin(), texts.end());
  std::sort(samples.begin(), samples.end(),
            [](const auto& a, const auto& b) { return a.front() < b.front(); });
  return samples;
}

}  // namespace meshloom::train
