// SPDX-License-Identifier: Apache-2.0
#include "tests/support/cuda_emulator/running_block.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <numeric>

#include "tests/support/cuda_emulator/architecture.h"
#include "tests/support/cuda_emulator/launch_records.h"
#include "tests/support/cuda_emulator/source_place.h"

namespace meshloom::emulator {
namespace {

void enter_thread() {
  RunningBlock& block = running_block();
  block.launch->invoke(block.launch->arguments);
  block.threads[block.current].status = Thread::Status::kDone;
  block.warps[block.current / kWarpLanes].gone |= 1u << block.current % kWarpLanes;
  ++block.done;
  yield_thread();
  std::abort();
}

void prepare_threads(RunningBlock& block, uint3 index) {
  const dim3 size = block.launch->block;
  for (unsigned first = 0; first < block.count; first += kWarpLanes) {
    const unsigned lanes = std::min(block.count - first, kWarpLanes);
    block.warps[first / kWarpLanes] = {0, lanes == kWarpLanes ? 0 : ~0u << lanes};
  }
  for (unsigned t = 0; t < block.count; ++t) {
    ThreadContext& context = block.stacks.context(t);
    context = {
        {t % size.x, t / size.x % size.y, t / (size.x * size.y)}, index, size, block.launch->grid};
    block.threads[t] = {};
    block.copies[t].clear();
    block.threads[t].stack = block.stacks.prepare(t, enter_thread);
  }
}

/// Where threads of a block wait that others do not reach.
std::string waiting_text(const RunningBlock& block) {
  std::string text;
  int named = 0;
  for (unsigned t = 0; t < block.count && named < 3; ++t) {
    if (block.threads[t].status == Thread::Status::kDone) continue;
    text += fmt::format("{}{} waits at {}", named++ == 0 ? "" : "; ", thread_text(t),
                        place_of(block.threads[t].site));
  }
  return text;
}

void run_block(RunningBlock& block, uint3 index, std::mt19937_64& random) {
  block.block_start = begin_epoch();
  block.at_barrier = block.done = 0;
  prepare_threads(block, index);
  block.current = static_cast<unsigned>(random() % block.count);
  block.step = random() % 2 == 0 ? 1 : block.count - 1;
  meshloom_emulator_switch(&block.host, block.threads[block.current].stack);
  if (block.fault.error != cudaSuccess) {
    std::string text =
        fmt::format("{}, in kernel {}", block.fault.text, function_name(block.launch->kernel));
    if (block.fault_return != nullptr)
      text += fmt::format(" at {}", place_of_return(block.fault_return));
    throw FaultError(block.fault.error, text);
  }
  if (block.done != block.count)
    throw FaultError(cudaErrorLaunchFailure,
                     fmt::format("a barrier that not all threads reach: {}; {} of {} threads have "
                                 "ended, in kernel {}",
                                 waiting_text(block), block.done, block.count,
                                 function_name(block.launch->kernel)));
}

/// A number without a common divisor with `count`: its multiples reach every block once.
std::uint64_t stride_over(std::uint64_t count, std::mt19937_64& random) {
  std::uint64_t stride = 1;
  do stride = random() % count + 1;
  while (std::gcd(stride, count) != 1);
  return stride;
}

}  // namespace

constinit RunningBlock* g_running_block = nullptr;

void run_grid(const Launch& launch, DeviceMemory& memory, WorkHistory& history,
              std::mt19937_64& random) {
  if (g_running_block == nullptr) g_running_block = new RunningBlock;
  RunningBlock& block = *g_running_block;
  block.launch = &launch;
  block.memory = &memory;
  block.history = &history;
  block.launch_start = current_epoch();
  block.traffic = launch_records().begin_launch();
  block.fault = {};
  block.fault_return = nullptr;
  block.count = launch.block.x * launch.block.y * launch.block.z;
  block.shared.begin_launch(launch.shared, architecture().shared_bytes);
  const std::uint64_t x = launch.grid.x, y = launch.grid.y, count = x * y * launch.grid.z;
  const std::uint64_t stride = stride_over(count, random);
  std::uint64_t index = random() % count;
  for (std::uint64_t done = 0; done < count; ++done) {
    run_block(block,
              {static_cast<unsigned>(index % x), static_cast<unsigned>(index / x % y),
               static_cast<unsigned>(index / (x * y))},
              random);
    index = (index + stride) % count;
  }
  if (block.traffic != nullptr) launch_records().end_launch(launch);
}

void yield_thread() {
  RunningBlock& block = running_block();
  Thread& from = block.threads[block.current];
  unsigned next = block.current;
  for (unsigned i = 0; i < block.count; ++i) {
    next += block.step;
    if (next >= block.count) next -= block.count;
    if (block.threads[next].status != Thread::Status::kReady) continue;
    if (next == block.current) return;
    block.current = next;
    meshloom_emulator_switch(&from.stack, block.threads[next].stack);
    return;
  }
  meshloom_emulator_switch(&from.stack, block.host);
}

std::string thread_text(unsigned thread) {
  const ThreadContext& context = running_block().stacks.context(thread);
  const uint3 t = context.thread_index, b = context.block_index;
  return fmt::format("thread ({}, {}, {}) of block ({}, {}, {})", t.x, t.y, t.z, b.x, b.y, b.z);
}

void abandon_block() {
  void* dead = nullptr;
  meshloom_emulator_switch(&dead, running_block().host);
  std::abort();
}

}  // namespace meshloom::emulator
