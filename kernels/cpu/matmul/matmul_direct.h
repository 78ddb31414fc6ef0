// SPDX-License-Identifier: Apache-2.0
// Products whose operands are read as they lie: no panel of them is converted first.
#pragma once

#include <cstddef>
#include <optional>
#include <span>

#include "kernels/backend.h"
#include "kernels/cpu/matmul/gemm.h"
#include "kernels/cpu/matmul/matmul_onednn.h"
#include "kernels/cpu/matmul/matmul_table.h"
#include "kernels/cpu/matmul/packed_plan.h"

namespace meshloom::kernels::cpu {

/// Returns the view as a library operand, where its dtype and strides allow it without a copy.
std::optional<GemmOperand> direct_operand(const TensorView& view, DType dtype);

/// DirectProduct is a product by few_rows, packed_product or a oneDNN primitive. `options` outlive
/// it.
class DirectProduct {
 public:
  /// Returns none where the table names a BLAS, or the views do not allow what it names. y and
  /// pre_activation [m, n], a [m, k], b [k, n].
  static std::optional<DirectProduct> plan(Threads threads, const TensorView& y,
                                           const TensorView& a, const TensorView& b,
                                           const MatmulOptions& options,
                                           const TensorView& pre_activation);

  MatmulProvider provider() const { return provider_; }
  /// Returns its name for people.
  const char* route() const;
  std::size_t scratch_bytes() const;
  void run(const KernelContext& context, std::span<std::byte> scratch) const;

 private:
  DirectProduct(const TensorView& y, const MatmulOptions& options, const TensorView& pre_activation)
      : y_(y), pre_(pre_activation), options_(&options) {}

  bool biased() const { return options_->epilogue != Epilogue::kNone; }
  bool with_gelu() const { return options_->epilogue > Epilogue::kBias; }
  bool fits_few_rows();
  bool fits_target();
  const float* bias_values(const KernelContext& context, float* room) const;
  void run_few_rows(const KernelContext& context, std::span<std::byte> scratch) const;
  void run_packed(const KernelContext& context, std::span<std::byte> scratch) const;
  void run_primitive(const KernelContext& context, std::span<std::byte> scratch) const;
  void apply_gelu(const KernelContext& context) const;

  TensorView y_, pre_;
  const MatmulOptions* options_;
  MatmulProvider provider_ = MatmulProvider::kPacked;
  Gemm gemm_;
  DType operands_ = DType::kFloat32;
  DType result_ = DType::kFloat32;  ///< of gemm_.y
  std::size_t provider_bytes_ = 0;
  PackedPlan packed_;  ///< of kPacked
};

}  // namespace meshloom::kernels::cpu
