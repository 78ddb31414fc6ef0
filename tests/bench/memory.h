// SPDX-License-Identifier: Apache-2.0
// Memory for benchmarks as the engine's allocator gives it: in huge pages.
#pragma once

#include <fmt/format.h>
#include <sys/mman.h>

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "kernels/base/error.h"

namespace meshloom::bench {

/// Zeros that begin at a huge page, touched, given back at the end.
class Memory {
 public:
  explicit Memory(std::size_t bytes) : mapped_(bytes + 2 * kHugePage) {
    base_ = mmap(nullptr, mapped_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (base_ == MAP_FAILED)
      throw ResourceExhausted(fmt::format("bench: no {} bytes of memory", bytes));
    const auto address = reinterpret_cast<std::uintptr_t>(base_);
    data_ = static_cast<std::byte*>(base_) + (kHugePage - address % kHugePage) % kHugePage;
    madvise(data_, (bytes + kHugePage - 1) / kHugePage * kHugePage, MADV_HUGEPAGE);
    std::memset(data_, 0, bytes);
  }
  ~Memory() { munmap(base_, mapped_); }
  Memory(const Memory&) = delete;
  Memory& operator=(const Memory&) = delete;

  std::byte* data() const { return data_; }

 private:
  static constexpr std::size_t kHugePage = 2 << 20;

  std::size_t mapped_;
  void* base_;
  std::byte* data_;
};

}  // namespace meshloom::bench
