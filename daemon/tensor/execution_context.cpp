// SPDX-License-Identifier: Apache-2.0
#include "daemon/tensor/execution_context.h"

#include "kernels/backend_table.h"
#include "kernels/base/error.h"

namespace meshloom {

// Keeps its block between ops and grows it, so that steady steps ask the allocator for nothing.
class ExecutionContext::AllocatorWorkspace final : public kernels::Workspace {
 public:
  explicit AllocatorWorkspace(Allocator& allocator) : allocator_(allocator) {}

  std::span<std::byte> reserve(std::size_t bytes) override {
    if (!storage_ || storage_->bytes() < bytes) {
      storage_.reset();
      storage_ = allocator_.allocate(bytes);
    }
    return {storage_->data(), bytes};
  }

 private:
  Allocator& allocator_;
  std::shared_ptr<Storage> storage_;
};

ExecutionContext::ExecutionContext() : ExecutionContext(Options{}) {}

ExecutionContext::ExecutionContext(Options options) : options_(std::move(options)) {
  if (options_.backend == nullptr) options_.backend = &kernels::backend_for(options_.device);
  const auto make_allocator = [this](MemoryKind kind) {
    return Allocator::create(options_.backend->make_source(kind, options_.threads));
  };
  if (!options_.allocator) options_.allocator = make_allocator(MemoryKind::kDevice);
  if (!options_.host_allocator) options_.host_allocator = make_allocator(MemoryKind::kHost);
  check(options_.allocator->device() == options_.device,
        "execution context: the allocator's memory is on another device");
  check(!options_.symmetric_allocator || options_.symmetric_allocator->device() == options_.device,
        "execution context: the symmetric allocator's memory is on another device");
  workspace_ = std::make_unique<AllocatorWorkspace>(*options_.allocator);
  if (!options_.stream) options_.stream = options_.backend->make_stream(options_.device);
  kernel_context_ = {options_.threads, options_.stream->get(), workspace_.get()};
}

ExecutionContext::~ExecutionContext() {
  workspace_.reset();
  options_.allocator->trim();
  options_.host_allocator->trim();
  if (options_.symmetric_allocator) options_.symmetric_allocator->trim();
}

}  // namespace meshloom
