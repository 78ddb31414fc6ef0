// SPDX-License-Identifier: Apache-2.0
// One call of matmul on a device: how it is split between the library, copies and own kernels.
#pragma once

#include <memory>
#include <span>

#include "kernels/backend.h"
#include "kernels/cuda/matmul/matmul_layout.h"
#include "kernels/cuda/matmul/matmul_plans.h"

namespace meshloom::kernels::cuda {

/// A product as Backend::matmul describes it, planned: none of its sizes is 0. Rows or columns that
/// are not dense go through copies in the scratch, and so do results of another dtype. What the
/// library's epilogues leave is done in place by an own kernel.
class Product {
 public:
  /// `device` is the index of the device; `copies` copies on it and outlives the product. `kernel`:
  /// its place among those that the library lists.
  Product(Backend& copies, int device, const TensorView& y, const TensorView& a,
          const TensorView& b, const MatmulOptions& options, int kernel = kTablesKernel);

  std::size_t scratch_bytes() const;
  /// What the library is given.
  const MatmulShape& library_shape() const { return shape_; }
  /// `scratch` is device memory of scratch_bytes(), aligned to 64. The context's workspace is left
  /// alone.
  void run(const KernelContext& context, std::span<std::byte> scratch) const;

 private:
  // Whether an operand or result is read or written in the scratch.
  struct Copied {
    bool y = false, a = false, b = false, kept = false;
  };

  void choose_copies();
  ProductViews scratch_views(std::byte* scratch) const;
  void choose_plan();
  bool try_plan(ProductViews views, const TensorView& result, LibraryEpilogue epilogue);
  bool bias_fits(const TensorView& result) const;
  ProductViews planned_views();
  ProductViews arranged(const ProductViews& views) const;
  void run_library(const KernelContext& context, const ProductViews& views,
                   std::byte* workspace) const;
  void run_own_epilogue(const KernelContext& context, const ProductViews& views) const;

  Backend& copies_;
  int device_, kernel_;
  MatmulOptions options_;
  ProductViews views_;
  Copied copied_;
  DType copied_as_ = DType::kFloat32;  // y in the scratch
  bool swapped_ = false;               // the library computes y's transpose
  MatmulShape shape_;
  std::shared_ptr<MatmulPlan> plan_;          ///< null while none fits
  bool own_bias_ = false, own_gelu_ = false;  // what is left of the epilogue
};

}  // namespace meshloom::kernels::cuda
