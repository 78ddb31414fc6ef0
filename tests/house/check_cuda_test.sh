#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# scripts/check_cuda.sh finds what .cu files may not hold, names file and line, and passes what they may.
set -euo pipefail
# shellcheck source=tests/house/assert.sh
. "$(dirname "$0")/assert.sh"

check() { run "$repository/scripts/check_cuda.sh" --root "$work/tree"; }

mkdir -p "$work/tree/kernels"
check
expect_status 0 "no .cu files"

write tree/kernels/cuda/right.cu '#include "kernels/cuda/device.h"' '#include <type_traits>' \
  '// It has no std::vector, no memcpy(a, b, 1) and no printf("").' \
  'template <int kWidth> __global__ void scale(float (*rows)[kWidth], int n) { (*rows)[n] *= 2.0f; }' \
  'void launch_scale(float* y, int n, cudaStream_t s) { launch(scale<4>, dim3(n), dim3(128), 0, s, y, n); }' \
  'void fill(void* to, cudaStream_t s) { cudaMemsetAsync(to, 0, 4, s); cudaMemcpyAsync(to, to, 4, kind, s); }'
check
expect_status 0 "what is allowed"
expect_line "cuda: 1 .cu files" "what is allowed"

# faulty TEXT LINE: a file with this line, its second one, is refused with the text.
faulty() {
  write tree/kernels/cuda/faulty.cu '#include "kernels/cuda/device.h"' "$2"
  check
  expect_status 1 "$2"
  expect_line "kernels/cuda/faulty.cu:2: $1" "$2"
}
faulty "CUB" '#include <cub/block/block_reduce.cuh>'
faulty "CUB" 'using Reduce = cub::BlockReduce<float, 128>;'
faulty "CUB" 'thrust::sort(a, b);'
faulty "CUB" 'cuda::std::array<int, 2> pair;'
faulty "a container" '#include <vector>'
faulty "a container" 'void launch(const std::vector<float*>& all);'
faulty "a container" 'struct Sizes { std::array<int, 4> all; };'
faulty "a container" 'void launch(std::string name);'
faulty "memcpy" '  memcpy(to, from, 16);'
faulty "memcpy" '  std::memset (to, 0, 16);'
faulty "memcpy" '  printf("%f", x);'
faulty "a function pointer" 'struct Op { float (*apply)(float); };'
faulty "a function pointer" 'using Apply = float (*)(float);'
faulty "a function pointer" '  float (*table[2])(float) = {};'
finish
