// SPDX-License-Identifier: Apache-2.0
#include "tests/support/fenced_device/access_records.h"

#include <algorithm>

#include "kernels/base/error.h"

namespace meshloom::testing {

void VectorClock::set(std::size_t stream, std::uint64_t number) {
  if (numbers_.size() <= stream) numbers_.resize(stream + 1);
  numbers_[stream] = number;
}

void VectorClock::merge(const VectorClock& other) {
  if (numbers_.size() < other.numbers_.size()) numbers_.resize(other.numbers_.size());
  for (std::size_t i = 0; i < other.numbers_.size(); ++i)
    numbers_[i] = std::max(numbers_[i], other.numbers_[i]);
}

void AccessRecords::check(const StreamItem& item, std::span<const MemoryUse> uses,
                          const VectorClock& before) const {
  for (std::size_t stream = 0; stream < records_.size(); ++stream) {
    if (stream == item.stream) continue;
    const std::deque<Record>& records = records_[stream];
    const auto first = std::upper_bound(
        records.begin(), records.end(), before.of(stream),
        [](std::uint64_t number, const Record& record) { return number < record.number; });
    for (auto record = first; record != records.end(); ++record)
      for (const MemoryUse& use : uses)
        if ((use.writes || record->use.writes) && use.range.overlaps(record->use.range))
          refuse(item, use, stream, *record);
  }
}

void AccessRecords::add(const StreamItem& item, std::span<const MemoryUse> uses) {
  if (records_.size() <= item.stream) records_.resize(item.stream + 1);
  for (const MemoryUse& use : uses) records_[item.stream].push_back({use, item.number, item.call});
}

void AccessRecords::forget(const VectorClock& host) {
  for (std::size_t stream = 0; stream < records_.size(); ++stream) {
    std::deque<Record>& records = records_[stream];
    while (!records.empty() && records.front().number <= host.of(stream)) records.pop_front();
  }
}

void AccessRecords::refuse(const StreamItem& item, const MemoryUse& use, std::size_t stream,
                           const Record& earlier) const {
  const auto verb = [](const MemoryUse& one) { return one.writes ? "writes" : "reads"; };
  const ByteRange both{std::max(use.range.begin, earlier.use.range.begin),
                       std::min(use.range.end, earlier.use.range.end)};
  throw InternalError(fmt::format(
      "fenced device {}: {} in stream {} {} as {} the bytes [{:#x}, {:#x}), which {} in stream {} "
      "{} as {}, with no event and no wait of the host between them",
      device_, item.call, item.stream, verb(use), use.name, both.begin, both.end, earlier.call,
      stream, verb(earlier.use), earlier.use.name));
}

}  // namespace meshloom::testing
