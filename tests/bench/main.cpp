// SPDX-License-Identifier: Apache-2.0
// meshloom-bench: one benchmark per call, one JSON line as result.
#include <cstdio>
#include <cstring>
#include <exception>

#include "daemon/base/quiet_threads.h"
#include "kernels/cpu/cpu_device.h"
#include "tests/bench/bench.h"

namespace {

struct Entry {
  const char* name;
  int (*run)(int, char**);
  const char* what;
};

constexpr Entry kBenchmarks[] = {
    {"train", meshloom::bench::run_train_bench, "training steps of a model"},
    {"checkpoint", meshloom::bench::run_checkpoint_bench, "saving and loading against a raw write"},
    {"collectives", meshloom::bench::run_collectives_bench,
     "collectives against Open MPI's and against copies"},
    {"generate", meshloom::bench::run_generate_bench, "prompts and single tokens of a model"},
    {"kernels", meshloom::bench::run_kernels_bench, "memory-bound kernels against copies"},
    {"matmul", meshloom::bench::run_matmul_bench, "matrix products against a register-only probe"},
    {"attention", meshloom::bench::run_attention_bench, "attention against a matrix product"},
    {"attention_error", meshloom::bench::run_attention_error_bench,
     "errors of context-parallel attention against float64"},
    {"device", meshloom::bench::run_device_bench,
     "copies, products and attention on a device over its ceilings"},
    {"dispatch", meshloom::bench::run_dispatch_bench, "what an op costs beside its kernel"},
    {"fused", meshloom::bench::run_fused_bench, "products that gather or scatter on the way"},
    {"context_plan", meshloom::bench::run_context_plan_bench,
     "one rank's plan of context-parallel attention"},
    {"peak", meshloom::bench::run_peak_bench, "what a rank could compute, for the mfu of jobs"},
    {"plan", meshloom::bench::run_plan_bench, "redistribution plans, searched and from the cache"},
    {"control", meshloom::bench::run_control_bench, "verbs of runs that clients drive"},
    {"startup", meshloom::bench::run_startup_bench, "mpirun to a serving daemon"},
    {"tokenize", meshloom::bench::run_tokenize_bench, "a tokenizer on a text"},
    {"tune", meshloom::bench::run_tune_bench, "the table of a GPU library's kernels"},
    {"upload", meshloom::bench::run_upload_bench, "an upload against what its parts cost"},
};

int usage() {
  std::fprintf(stderr,
               "usage: meshloom-bench NAME [options]; --help after a name shows its options\n");
  for (const Entry& entry : kBenchmarks)
    std::fprintf(stderr, "  %-16s %s\n", entry.name, entry.what);
  return 2;
}

}  // namespace

int main(int argc, char** argv) {
  meshloom::kernels::cpu::add_cpu_device();
  meshloom::base::use_quiet_threads(argv);
  if (argc < 2) return usage();
  for (const Entry& entry : kBenchmarks) {
    if (std::strcmp(entry.name, argv[1]) != 0) continue;
    try {
      return entry.run(argc - 1, argv + 1);
    } catch (const std::exception& error) {
      std::fprintf(stderr, "meshloom-bench %s: %s\n", entry.name, error.what());
      return 1;
    }
  }
  return usage();
}
