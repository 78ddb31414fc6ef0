// SPDX-License-Identifier: Apache-2.0
// Which of cuBLASLt's kernels a product takes: a fixed, versioned table, so that the same job on
// the same kind of GPU gives the same bits. No CUDA in it.
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "kernels/cuda/matmul/matmul_shape.h"

namespace meshloom::kernels::cuda {

/// One product, as the library is given it, and the place of its kernel among the deterministic
/// ones that the library lists.
struct MatmulChoice {
  std::string_view device;  ///< "sm_90"
  DType operands, result;
  std::int64_t m, n, k, batch;
  bool a_transposed, b_transposed;
  LibraryEpilogue epilogue;
  int kernel;
};

/// Of the entries; raised by each new table, 0 of the empty one. Stored in checkpoints.
int matmul_table_version();

/// The place of the kernel for `shape`: the table's, where it has an entry for it and was measured
/// with `libraries` (library_versions()), else 0.
int choose_matmul_kernel(std::string_view device, std::string_view libraries,
                         const MatmulShape& shape);

/// An entry as the table's source has it.
std::string matmul_entry(std::string_view device, const MatmulShape& shape, int kernel);
/// The source of the next version of the table (matmul_choices.h).
std::string matmul_table_source(std::string_view libraries, std::span<const std::string> entries);

}  // namespace meshloom::kernels::cuda
