// SPDX-License-Identifier: Apache-2.0
// SharedMemory: of the block that runs.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "tests/support/cuda_emulator/shadow.h"

namespace meshloom::emulator {

class SharedMemory {
 public:
  static constexpr std::size_t kBytes = std::size_t{512} << 10;
  /// What a kernel may declare, and what it may ask for without cudaFuncSetAttribute.
  static constexpr std::size_t kUsual = std::size_t{48} << 10;

  SharedMemory();

  /// A launch begins with `dynamic` bytes of shared memory, at most `most` in all.
  void begin_launch(std::size_t dynamic, std::size_t most);
  /// nullptr: there is not so much.
  void* variable(const void* key, std::size_t bytes, std::size_t alignment);
  void* dynamic() const { return reinterpret_cast<void*>(begin_ + dynamic_at_); }
  std::size_t taken() const { return static_bytes_ + dynamic_bytes_; }

  std::size_t offset(const void* address) const {
    return reinterpret_cast<std::uintptr_t>(address) - begin_;
  }
  Shadow& shadow() { return shadow_; }

 private:
  struct Variable {
    const void* key;
    std::size_t at;
  };

  std::size_t place(std::size_t bytes, std::size_t alignment);

  std::uintptr_t begin_ = 0;
  Shadow shadow_{Shadow::kChunkBytes};
  std::vector<Variable> variables_;
  std::size_t end_ = 0;  ///< of what is placed
  std::size_t dynamic_at_ = 0;
  std::size_t dynamic_bytes_ = 0;
  std::size_t static_bytes_ = 0;
  std::size_t most_ = 0;
};

}  // namespace meshloom::emulator
