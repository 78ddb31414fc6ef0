// SPDX-License-Identifier: Apache-2.0
// `meshloom-bench matmul`.
#pragma once

namespace meshloom::bench {

/// Matrix products at the shapes of GPT-2 and the quickstart model, or at one given with --shape,
/// each next to a register-only probe. argv[0] is the benchmark's name.
int run_matmul_bench(int argc, char** argv);

}  // namespace meshloom::bench
