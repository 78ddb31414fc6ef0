// SPDX-License-Identifier: Apache-2.0
// meshloom-bench kernels: bytes a second of the kernels that memory bounds, against copies of the
// same run.
#pragma once

namespace meshloom::bench {

/// Prints a table, or with --json one JSON line per kernel. Returns the exit status. argv[0] is the
/// benchmark's name.
int run_kernels_bench(int argc, char** argv);

}  // namespace meshloom::bench
