// SPDX-License-Identifier: Apache-2.0
#include "tests/support/cuda_emulator/shared_memory.h"

#include <sys/mman.h>

#include <algorithm>
#include <new>

namespace meshloom::emulator {
namespace {

// Between two variables, so that an index past the end of one finds no other.
constexpr std::size_t kGuard = 64;
constexpr std::size_t kLeastAlignment = 16;

}  // namespace

SharedMemory::SharedMemory() {
  void* const data =
      ::mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (data == MAP_FAILED) throw std::bad_alloc();
  begin_ = reinterpret_cast<std::uintptr_t>(data);
}

void SharedMemory::begin_launch(std::size_t dynamic, std::size_t most) {
  shadow_.set_live(0, end_, false);
  variables_.clear();
  end_ = static_bytes_ = 0;
  most_ = most;
  dynamic_bytes_ = dynamic;
  dynamic_at_ = place(dynamic, 128);
}

void* SharedMemory::variable(const void* key, std::size_t bytes, std::size_t alignment) {
  const auto known = std::find_if(variables_.begin(), variables_.end(),
                                  [key](const Variable& variable) { return variable.key == key; });
  if (known != variables_.end()) return reinterpret_cast<void*>(begin_ + known->at);
  static_bytes_ += bytes;
  if (static_bytes_ > kUsual || taken() > most_) return nullptr;
  variables_.push_back({key, place(bytes, std::max(alignment, kLeastAlignment))});
  return reinterpret_cast<void*>(begin_ + variables_.back().at);
}

std::size_t SharedMemory::place(std::size_t bytes, std::size_t alignment) {
  const std::size_t at = (end_ + kGuard + alignment - 1) / alignment * alignment;
  end_ = at + bytes;
  shadow_.set_live(at, bytes, true);
  return at;
}

}  // namespace meshloom::emulator
