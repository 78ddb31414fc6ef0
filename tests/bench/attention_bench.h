// SPDX-License-Identifier: Apache-2.0
// `meshloom-bench attention`.
#pragma once

namespace meshloom::bench {

/// Flash attention forward and backward at several sequence lengths, each next to a register-only
/// probe and a matrix product of the same run. argv[0] is the benchmark's name.
int run_attention_bench(int argc, char** argv);

}  // namespace meshloom::bench
