// SPDX-License-Identifier: Apache-2.0
// All that a library's choice of a kernel for a product depends on: the key of its plan.
#pragma once

#include <compare>
#include <cstdint>

#include "kernels/base/dtype.h"

namespace meshloom::kernels::cuda {

/// A matrix [rows, columns] whose rows are dense and lie `ld` elements apart; if `transposed`, its
/// columns are and do.
struct MatrixLayout {
  bool transposed = false;
  std::int64_t ld = 0;
  std::int64_t batch_stride = 0;  ///< elements; 0: one matrix for all
  int alignment = 0;  ///< bytes that every matrix's address is a multiple of, at most 16

  auto operator<=>(const MatrixLayout&) const = default;
};

/// What the library does to its result. Biases have the result's dtype.
enum class LibraryEpilogue : std::uint8_t {
  kNone,
  kBias,
  kBiasGeluTanh,
  kBiasGeluTanhKept,  ///< and GELU's argument is stored too
};

/// Products y[i] [m, n] = epilogue(alpha * a[i] [m, k] b[i] [k, n] + beta * y[i]) for i < batch. y
/// and what the epilogue keeps have dense rows.
struct MatmulShape {
  DType operands = DType::kFloat32;  ///< kFloat8E4M3: multiplied by a scale each
  DType result = DType::kFloat32;
  std::int64_t m = 0, n = 0, k = 0, batch = 1;
  MatrixLayout y, a, b;
  LibraryEpilogue epilogue = LibraryEpilogue::kNone;
  MatrixLayout kept;  ///< for kBiasGeluTanhKept

  auto operator<=>(const MatmulShape&) const = default;
};

}  // namespace meshloom::kernels::cuda
