// SPDX-License-Identifier: Apache-2.0
// What a rank could compute, for the mfu of jobs: written into a state dir, where the daemon finds
// it.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <filesystem>
#include <string>

#include "daemon/base/peak_flops.h"
#include "kernels/backend_table.h"
#include "tests/bench/bench.h"
#include "tests/bench/probe.h"

namespace meshloom::bench {

int run_peak_bench(int argc, char** argv) {
  CLI::App app{"Operations a second of a rank, which jobs of a daemon on the state dir tell mfu by",
               "peak"};
  int threads = 1;
  std::string state_dir;
  app.add_option("--threads", threads, "Of a rank, as the daemon has them")
      ->required()
      ->check(CLI::Range(1, 4096));
  app.add_option("--state-dir", state_dir, "Of the daemon")
      ->required()
      ->check(CLI::ExistingDirectory);
  CLI11_PARSE(app, argc, argv);
  const double float32 = fma_flops_per_second({threads});
  // Where nothing has products of bfloat16, they are float32 ones.
  const base::PeakFlops peak{kernels::backend_for(kCpuDevice).describe().compute_class, threads,
                             float32, std::max(float32, bfloat16_flops_per_second({threads}))};
  base::write_peak_flops(state_dir, peak);
  fmt::print(
      "{{\"bench\": \"peak\", \"compute_class\": \"{}\", \"threads\": {}, \"float32\": {:.4g}, "
      "\"bfloat16\": {:.4g}}}\n",
      peak.compute_class, peak.threads, peak.float32, peak.bfloat16);
  return 0;
}

}  // namespace meshloom::bench
