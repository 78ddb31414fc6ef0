// SPDX-License-Identifier: Apache-2.0
// HeapWorkspace: scratch memory of the host, which grows with what is asked of it.
#pragma once

#include <cstddef>
#include <cstdlib>
#include <memory>
#include <new>
#include <span>

#include "kernels/backend.h"
#include "kernels/base/integer_math.h"

namespace meshloom::testing {

class HeapWorkspace final : public kernels::Workspace {
 public:
  std::span<std::byte> reserve(std::size_t bytes) override {
    if (bytes > bytes_) {
      const std::size_t grown = round_up(bytes, kAlignment);
      bytes_ = 0;
      data_.reset(static_cast<std::byte*>(std::aligned_alloc(kAlignment, grown)));
      if (!data_) throw std::bad_alloc();
      bytes_ = grown;
    }
    return {data_.get(), bytes};
  }

 private:
  static constexpr std::size_t kAlignment = 64;
  struct Free {
    void operator()(std::byte* data) const { std::free(data); }
  };

  std::unique_ptr<std::byte[], Free> data_;
  std::size_t bytes_ = 0;
};

}  // namespace meshloom::testing
