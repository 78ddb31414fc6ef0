// SPDX-License-Identifier: Apache-2.0
// HostValues: elements of a tensor that the host has read.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <utility>

#include "daemon/tensor/storage.h"

namespace meshloom {

/// HostValues has a tensor's values in row-major order, in memory of kind kHost. Lives no longer
/// than the context of the tensor.
class HostValues {
 public:
  HostValues() = default;
  HostValues(std::shared_ptr<Storage> memory, std::int64_t count)
      : memory_(std::move(memory)), count_(static_cast<std::size_t>(count)) {}

  /// The caller knows the dtype.
  template <typename T>
  std::span<const T> as() const {
    return {count_ == 0 ? nullptr : reinterpret_cast<const T*>(memory_->data()), count_};
  }

 private:
  std::shared_ptr<Storage> memory_;
  std::size_t count_ = 0;
};

}  // namespace meshloom
