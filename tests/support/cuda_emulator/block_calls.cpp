// SPDX-License-Identifier: Apache-2.0
// Barriers of a block and its shared memory, as kernels call them.
#include "tests/support/cuda_emulator/device/emulated_block.h"

#include <fmt/format.h>

#include <string_view>

#include "tests/support/cuda_emulator/running_block.h"
#include "tests/support/cuda_emulator/source_place.h"

namespace meshloom::emulator {
namespace {

void fail_ended(RunningBlock& block, Site site) {
  block.fault = {cudaErrorLaunchFailure,
                 fmt::format("a barrier that not all threads reach: {} waits at {}, where {} of {} "
                             "threads have ended",
                             thread_text(block.current), place_of(site), block.done, block.count)};
}

bool differ(Site a, Site b) {
  if (a.line() != b.line()) return true;
  return a.file_name() != b.file_name() && std::string_view(a.file_name()) != b.file_name();
}

void fail_places(RunningBlock& block, unsigned other) {
  block.fault = {
      cudaErrorLaunchFailure,
      fmt::format("threads of a block meet at two barriers: {} at {}, {} at {}",
                  thread_text(block.current), place_of(block.threads[block.current].site),
                  thread_text(other), place_of(block.threads[other].site))};
}

void fail_shared(RunningBlock& block, std::size_t bytes) {
  block.fault = {
      cudaErrorInvalidConfiguration,
      fmt::format("shared memory of {} bytes, of which the launch gave {}, where {} bytes more are "
                  "declared, by {}; a kernel may declare {}",
                  block.shared.taken(), block.launch->shared, bytes, thread_text(block.current),
                  SharedMemory::kUsual)};
}

}  // namespace

int meet_at_barrier(int value, Site site) {
  RunningBlock& block = running_block();
  Thread& me = block.threads[block.current];
  me.site = site;
  me.value = static_cast<std::uint64_t>(value);
  if (block.done > 0) {
    fail_ended(block, site);
    abandon_block();
  }
  if (++block.at_barrier < block.count) {
    me.status = Thread::Status::kAtBarrier;
    yield_thread();
    return static_cast<int>(me.result);
  }
  std::uint64_t sum = 0;
  for (unsigned t = 0; t < block.count; ++t) {
    if (differ(block.threads[t].site, site)) {
      fail_places(block, t);
      abandon_block();
    }
    sum += block.threads[t].value;
  }
  for (unsigned t = 0; t < block.count; ++t) {
    block.threads[t].status = Thread::Status::kReady;
    block.threads[t].result = sum;
    block.threads[t].sync = 0;
  }
  block.at_barrier = 0;
  begin_epoch();
  return static_cast<int>(sum);
}

void* shared_variable(const void* key, std::size_t bytes, std::size_t alignment) {
  RunningBlock& block = running_block();
  void* const data = block.shared.variable(key, bytes, alignment);
  if (data == nullptr) {
    fail_shared(block, bytes);
    abandon_block();
  }
  return data;
}

void* dynamic_shared() { return running_block().shared.dynamic(); }

}  // namespace meshloom::emulator
