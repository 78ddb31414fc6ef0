// SPDX-License-Identifier: Apache-2.0
// AccessRecords: who touched which memory of a device, to find work that nothing orders.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "tests/support/fenced_device/byte_range.h"

namespace meshloom::testing {

/// For each stream the number of its last item that comes before something: a vector clock.
/// Source: Mattern, "Virtual Time and Global States of Distributed Systems", 1989.
class VectorClock {
 public:
  std::uint64_t of(std::size_t stream) const {
    return stream < numbers_.size() ? numbers_[stream] : 0;
  }
  void set(std::size_t stream, std::uint64_t number);
  /// What comes before `other` comes before this as well.
  void merge(const VectorClock& other);

 private:
  std::vector<std::uint64_t> numbers_;
};

/// Memory that an item touches, as the argument `name` of its call.
struct MemoryUse {
  ByteRange range;
  const char* name = nullptr;
  bool writes = false;
};

/// A call in a stream: its place among the stream's items, from 1 on.
struct StreamItem {
  std::size_t stream = 0;
  std::uint64_t number = 0;
  const char* call = nullptr;
};

/// What it finds depends on the order of the calls alone, not on what the device has done so far.
class AccessRecords {
 public:
  explicit AccessRecords(std::string device) : device_(std::move(device)) {}

  /// Throws InternalError where an item of another stream, which is not in `before`, touches a byte
  /// of `uses` and one of both writes it.
  void check(const StreamItem& item, std::span<const MemoryUse> uses,
             const VectorClock& before) const;
  /// Items of a stream come in their order.
  void add(const StreamItem& item, std::span<const MemoryUse> uses);
  /// Drops what the host knows to be done, since all that comes later is behind it.
  void forget(const VectorClock& host);

 private:
  struct Record {
    MemoryUse use;
    std::uint64_t number;
    const char* call;
  };

  [[noreturn]] void refuse(const StreamItem& item, const MemoryUse& use, std::size_t stream,
                           const Record& earlier) const;

  std::string device_;
  std::vector<std::deque<Record>> records_;  ///< by stream
};

}  // namespace meshloom::testing
