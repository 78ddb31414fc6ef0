// SPDX-License-Identifier: Apache-2.0
#include "tests/bench/rank_turns.h"

#include <time.h>

#include "tests/bench/bench.h"

namespace meshloom::bench {
namespace {

double slowest_of(comm::ProcessGroup& world, double seconds) {
  world.all_reduce(make_view(&seconds, DType::kFloat64, {1}), comm::ReduceOp::kMax)->wait_host();
  return seconds;
}

}  // namespace

void run_in_turns(comm::ProcessGroup& world, std::span<Way> ways, double seconds) {
  for (const Way& way : ways) way.call();
  const Clock::time_point start = Clock::now();
  double go_on = 1.0;
  while (go_on > 0.0) {
    for (Way& way : ways) {
      world.barrier()->wait_host();
      const Clock::time_point begin = Clock::now();
      const double cpu_begin = cpu_seconds_on(CLOCK_PROCESS_CPUTIME_ID);
      way.call();
      const double cpu = cpu_seconds_on(CLOCK_PROCESS_CPUTIME_ID) - cpu_begin;
      // Until all ranks are done: with fewer cores than ranks a way that waits for nobody would
      // else seem to have a core of its own.
      world.barrier()->wait_host();
      way.seconds.push_back(slowest_of(world, seconds_since(begin)));
      way.cpu_seconds.push_back(slowest_of(world, cpu));
    }
    go_on = slowest_of(world, seconds - seconds_since(start));
  }
}

Tensor bench_values(ExecutionContext& context, const Shape& shape, DType dtype) {
  std::vector<float> numbers(static_cast<std::size_t>(numel(shape)));
  for (std::size_t i = 0; i < numbers.size(); ++i)
    numbers[i] = static_cast<float>(i * 7919 % 1000) * 1e-3f - 0.5f;
  return from_values(context, shape, numbers, dtype);
}

}  // namespace meshloom::bench
