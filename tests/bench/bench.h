// SPDX-License-Identifier: Apache-2.0
// What the benchmarks of meshloom-bench share.
#pragma once

#include <time.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <vector>

namespace meshloom::bench {

using Clock = std::chrono::steady_clock;

inline double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

/// CPU time on one of the system's clocks, such as CLOCK_PROCESS_CPUTIME_ID.
inline double cpu_seconds_on(clockid_t clock) {
  timespec now{};
  ::clock_gettime(clock, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

/// The value below which a share `p` of `values` lies (nearest rank). `values` is not empty.
inline double percentile(std::vector<double> values, double p) {
  std::sort(values.begin(), values.end());
  const auto rank = static_cast<std::size_t>(std::ceil(p * static_cast<double>(values.size())));
  return values[std::clamp<std::size_t>(rank, 1, values.size()) - 1];
}

// Each returns the exit status and prints JSON lines on standard output; the single kernels'
// benchmarks print a table unless asked for JSON. argv[0] is the benchmark's name.
int run_train_bench(int argc, char** argv);
int run_tune_bench(int argc, char** argv);
int run_checkpoint_bench(int argc, char** argv);
/// Under mpirun, or with --local-ranks; a table unless asked for JSON.
int run_collectives_bench(int argc, char** argv);
int run_startup_bench(int argc, char** argv);
/// With a daemon of its own, as the one above.
int run_control_bench(int argc, char** argv);
int run_upload_bench(int argc, char** argv);
int run_tokenize_bench(int argc, char** argv);
/// Writes what it finds into a state dir.
int run_peak_bench(int argc, char** argv);
int run_plan_bench(int argc, char** argv);
int run_context_plan_bench(int argc, char** argv);
int run_dispatch_bench(int argc, char** argv);
int run_generate_bench(int argc, char** argv);
int run_kernels_bench(int argc, char** argv);
/// At the layer shapes of GPT-2 and Llama, tensor-parallel.
int run_fused_bench(int argc, char** argv);
/// At the shapes of GPT-2 and the quickstart model, or at one given with --shape.
int run_matmul_bench(int argc, char** argv);
/// Forward and backward at several sequence lengths.
int run_attention_bench(int argc, char** argv);
int run_attention_error_bench(int argc, char** argv);
/// Runs on any device that this process has.
int run_device_bench(int argc, char** argv);

}  // namespace meshloom::bench
