// SPDX-License-Identifier: Apache-2.0
#include "daemon/comm/symm_mem/tensors/symmetric_source.h"

#include <map>

namespace meshloom::comm {
namespace {

class SymmetricSource final : public SegmentSource {
 public:
  explicit SymmetricSource(std::shared_ptr<SymmetricMemory> memory) : memory_(std::move(memory)) {}

  Device device() const override { return memory_->device(); }

  std::byte* acquire(std::size_t bytes) override {
    std::shared_ptr<std::byte> memory = memory_->allocate(bytes);
    std::byte* const data = memory.get();
    held_[data] = std::move(memory);
    return data;
  }

  bool extend(std::byte*, std::size_t, std::size_t) override { return false; }
  void release(std::byte* data, std::size_t) override { held_.erase(data); }
  std::size_t granularity() const override { return std::size_t{2} << 20; }

 private:
  std::shared_ptr<SymmetricMemory> memory_;
  std::map<std::byte*, std::shared_ptr<std::byte>> held_;
};

}  // namespace

std::unique_ptr<SegmentSource> make_symmetric_source(std::shared_ptr<SymmetricMemory> memory) {
  return std::make_unique<SymmetricSource>(std::move(memory));
}

std::shared_ptr<Allocator> make_symmetric_allocator(ProcessGroup& group) {
  std::shared_ptr<SymmetricMemory> memory = group.symmetric_memory();
  return memory ? Allocator::create(make_symmetric_source(std::move(memory))) : nullptr;
}

}  // namespace meshloom::comm
