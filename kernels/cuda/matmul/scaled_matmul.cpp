// SPDX-License-Identifier: Apache-2.0
#include "kernels/cuda/matmul/scaled_matmul.h"

#include <memory>
#include <span>

#include "kernels/cuda/host_views.h"
#include "kernels/cuda/matmul/matmul_plans.h"
#include "kernels/cuda/matmul/product.h"
#include "kernels/cuda/matmul/scale_product_launch.h"
#include "kernels/cuda/runtime/call_log.h"
#include "kernels/cuda/runtime/current_device.h"
#include "kernels/cuda/scratch.h"
#include "kernels/scaled_product.h"

namespace meshloom::kernels::cuda {
namespace {

bool is_float8(DType dtype) { return dtype == DType::kFloat8E4M3 || dtype == DType::kFloat8E5M2; }

bool is_one(const TensorView& factors) { return factors.defined() && factors.size(0) == 1; }

// Where the library has no kernel, or does not take such operands, null.
std::shared_ptr<MatmulPlan> float8_plan(int device, const TensorView& sums, const TensorView& a,
                                        const TensorView& b, const ProductScales& scales) {
  constexpr std::int64_t kStep = 16;  // of inner elements and columns
  constexpr int kAlignment = 16;      // bytes
  if (a.dtype != DType::kFloat8E4M3 || b.dtype != a.dtype || !has_float8_products(device))
    return nullptr;
  if (!is_one(scales.rows) || !is_one(scales.columns)) return nullptr;
  if (a.size(1) == 0 || a.size(1) % kStep != 0 || b.size(1) % kStep != 0) return nullptr;
  if (!matrix_layout(a) || !matrix_layout(b)) return nullptr;
  const MatmulShape shape = matmul_shape(folded({sums, a, b, {}}), LibraryEpilogue::kNone);
  if (shape.a.transposed || !shape.b.transposed || shape.a.alignment < kAlignment ||
      shape.b.alignment < kAlignment)
    return nullptr;
  return matmul_plan_of(device, shape);
}

// The product in float32, and what of the scales it does not have yet.
class Sums {
 public:
  Sums(Backend& copies, int device, const TensorView& y, const TensorView& a, const TensorView& b,
       const ProductScales& scales)
      : copies_(copies), device_(device), y_(y), a_(a), b_(b), scales_(scales) {
    plan_ = float8_plan(device, sums_in(nullptr), a, b, scales);
  }

  bool applies_scales() const { return plan_ != nullptr; }
  std::size_t scratch_bytes() const {
    const std::size_t own = own_sums() ? scratch_piece(sums_in(nullptr).bytes()) : 0;
    return own + product_bytes();
  }

  TensorView run(const KernelContext& context, std::span<std::byte> scratch) const {
    const TensorView sums = sums_in(scratch.data());
    std::byte* const rest = scratch.data() + (scratch.size() - product_bytes());
    if (a_.size(1) == 0) {
      copies_.fill(context, sums, 0.0);
    } else if (plan_ != nullptr) {
      MatmulRun run;
      run.y = sums.data;
      run.a = a_.data;
      run.b = b_.data;
      run.a_scale = scales_.rows.as<const float>();
      run.b_scale = scales_.columns.as<const float>();
      call_log().add("matmul");
      plan_->run(stream_of(context), run, rest);
    } else {
      run_widened(context, sums, rest);
    }
    return sums;
  }

 private:
  bool own_sums() const { return y_.dtype != DType::kFloat32; }
  TensorView sums_in(void* memory) const {
    return own_sums() ? make_view(memory, DType::kFloat32, y_.shape, y_.device) : y_;
  }
  // bfloat16 holds every float8 number.
  static TensorView wide(const TensorView& x, ScratchCutter& cutter) {
    if (!is_float8(x.dtype)) return x;
    TensorView view = make_view(nullptr, DType::kBFloat16, x.shape, x.device);
    view.data = cutter.take(view.bytes());
    return view;
  }
  static std::size_t wide_bytes(const TensorView& x) {
    return is_float8(x.dtype) ? scratch_piece(2 * static_cast<std::size_t>(x.numel())) : 0;
  }
  Product product(const TensorView& sums, std::byte* memory) const {
    ScratchCutter cutter(memory);
    const TensorView a = wide(a_, cutter);
    return {copies_, device_, sums, a, wide(b_, cutter), {}};
  }
  std::size_t product_bytes() const {
    if (a_.size(1) == 0) return 0;
    if (plan_ != nullptr) return scratch_piece(plan_->workspace_bytes());
    return wide_bytes(a_) + wide_bytes(b_) + product(sums_in(nullptr), nullptr).scratch_bytes();
  }
  void run_widened(const KernelContext& context, const TensorView& sums, std::byte* memory) const {
    ScratchCutter cutter(memory);
    KernelContext inner = context;
    inner.workspace = nullptr;
    for (const TensorView* x : {&a_, &b_}) {
      const TensorView to = wide(*x, cutter);
      if (is_float8(x->dtype)) copies_.copy(inner, to, *x);
    }
    const std::size_t widened = wide_bytes(a_) + wide_bytes(b_);
    product(sums, memory).run(context, {memory + widened, product_bytes() - widened});
  }

  Backend& copies_;
  int device_;
  const TensorView &y_, &a_, &b_;
  const ProductScales& scales_;
  std::shared_ptr<MatmulPlan> plan_;
};

ScaleProduct scale_product(const TensorView& y, const TensorView& sums,
                           const MatmulOptions& options, bool has_scales) {
  const ProductScales& scales = options.scales;
  ScaleProduct call;
  call.y = y.data;
  call.dtype = y.dtype;
  call.sums = sums.as<const float>();
  call.rows = y.size(0);
  call.columns = y.size(1);
  if (!has_scales) {
    call.row_scales = {scales.rows.as<const float>(), factor_stride(scales.rows)};
    call.column_scales = {scales.columns.as<const float>(), factor_stride(scales.columns)};
  }
  call.result_scale = scales.result.as<const float>();
  if (options.epilogue == Epilogue::kBias)
    call.bias = {options.bias.as<const float>(), options.bias.stride(0)};
  return call;
}

}  // namespace

void scaled_matmul(Backend& copies, int device, const KernelContext& context, const TensorView& y,
                   const TensorView& a, const TensorView& b, const MatmulOptions& options) {
  check_scaled_product(y, a, options);
  const Sums product(copies, device, y, a, b, options.scales);
  const TensorView sums =
      product.run(context, reserve_scratch(context, product.scratch_bytes(), "matmul"));
  launch_scale_product(scale_product(y, sums, options, product.applies_scales()),
                       stream_of(context));
}

}  // namespace meshloom::kernels::cuda
