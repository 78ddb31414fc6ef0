// SPDX-License-Identifier: Apache-2.0
#include "tests/support/kernel_device.h"

#include <fmt/format.h>

#include <cstdint>
#include <cstring>
#include <string>

#include "daemon/tensor/execution_context.h"
#include "kernels/cpu/simd/targets.h"

namespace meshloom::kernels::test {
namespace {

/// A fresh block for each call, so that what an earlier op left is not found there.
class FreshWorkspace final : public Workspace {
 public:
  explicit FreshWorkspace(ExecutionContext& context) : context_(context) {}
  std::span<std::byte> reserve(std::size_t bytes) override {
    block_ = context_.allocator().allocate(bytes);
    if (context_.device() == kCpuDevice && bytes > 0) std::memset(block_->data(), 0xff, bytes);
    return {block_->data(), bytes};
  }

 private:
  ExecutionContext& context_;
  std::shared_ptr<Storage> block_;
};

ExecutionContext::Options options_of_device() {
  ExecutionContext::Options options;
  options.device = meshloom::testing::test_device();
  return options;
}

struct KernelDevice {
  ExecutionContext context{options_of_device()};
  FreshWorkspace workspace{context};
};

/// FNV-1a over whole downloads.
struct Digest {
  std::uint64_t value = 0xcbf29ce484222325u;

  void add(std::span<const std::byte> bytes) {
    for (const std::byte byte : bytes)
      value = (value ^ std::to_integer<std::uint64_t>(byte)) * 0x100000001b3u;
  }
};

std::unique_ptr<KernelDevice> g_device;
Digest g_body, g_all;

KernelDevice& device() {
  if (!g_device) g_device = std::make_unique<KernelDevice>();
  return *g_device;
}

void run(const KernelContext& context, const std::function<void(const KernelContext&)>& body) {
  g_body = {};
  body(context);
}

class KernelEnvironment final : public ::testing::Environment {
 public:
  void TearDown() override {
    fmt::print("bits of all downloads on {}: {:016x}\n", backend().name(), g_all.value);
    g_device.reset();
  }
};

}  // namespace

Backend& backend() { return device().context.backend(); }

KernelContext test_context() {
  return {{1}, device().context.kernel_context().stream, &device().workspace};
}

void run_on_device(const std::function<void(const KernelContext&)>& body) {
  run(test_context(), body);
}

void for_all_settings(const std::function<void(const KernelContext&)>& body) {
  // More than one thread, where they could change the order of sums from run to run.
  KernelContext several = test_context();
  if (meshloom::testing::test_device() == kCpuDevice) several.threads = {3};
  run(several, body);
  const std::uint64_t first = g_body.value;
  run(several, body);
  EXPECT_EQ(g_body.value, first) << "a second run downloads other bits";
  if (meshloom::testing::test_device() != kCpuDevice) return;
  for (const std::string& target : cpu::available_targets()) {
    cpu::force_target(target);
    for (const int threads : {1, 2, 3}) {
      SCOPED_TRACE(target + ", " + std::to_string(threads) + " threads");
      KernelContext context = test_context();
      context.threads = {threads};
      run(context, body);
    }
    cpu::force_target("");
  }
}

void finish() {
  const auto event = backend().make_event();
  event->record(test_context().stream);
  event->wait();
}

std::shared_ptr<Storage> allocate_on_device(std::size_t bytes) {
  return device().context.allocator().allocate(bytes);
}

void note_download(std::span<const std::byte> bytes) {
  g_body.add(bytes);
  g_all.add(bytes);
}

::testing::Environment* make_kernel_environment() { return new KernelEnvironment; }

}  // namespace meshloom::kernels::test
