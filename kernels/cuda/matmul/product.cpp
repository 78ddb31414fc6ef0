// SPDX-License-Identifier: Apache-2.0
#include "kernels/cuda/matmul/product.h"

#include <algorithm>
#include <utility>

#include "kernels/base/error.h"
#include "kernels/cuda/host_views.h"
#include "kernels/cuda/matmul/bias_gelu_launch.h"
#include "kernels/cuda/matmul/matmul_plans.h"
#include "kernels/cuda/runtime/call_log.h"
#include "kernels/cuda/scratch.h"

namespace meshloom::kernels::cuda {
namespace {

// Results that the library gives for operands of a dtype.
bool offers_result(DType operands, DType result) {
  return result == operands || (result == DType::kFloat32 && operands != DType::kFloat64);
}

bool dense_rows(const TensorView& view) {
  const std::optional<MatrixLayout> layout = matrix_layout(view);
  return layout && !layout->transposed;
}

// A view without the leading dims along which it repeats itself.
TensorView without_repeats(TensorView view) {
  for (int d = 0; d < view.ndim() - 2; ++d)
    if (view.stride(d) == 0) view.shape[d] = 1;
  return view;
}

// A dense twin of a view, with the same repeats.
TensorView twin(const TensorView& view, DType dtype, ScratchCutter& cutter) {
  const TensorView once = without_repeats(view);
  const auto bytes = static_cast<std::size_t>(once.numel()) * dtype_size(dtype);
  TensorView dense = make_view(cutter.take(bytes), dtype, once.shape, view.device);
  for (int d = 0; d < view.ndim() - 2; ++d)
    if (once.size(d) != view.size(d)) dense.strides[d] = 0;
  dense.shape = view.shape;
  return dense;
}

std::size_t twin_bytes(const TensorView& view, DType dtype) {
  return scratch_piece(static_cast<std::size_t>(without_repeats(view).numel()) * dtype_size(dtype));
}

void* at(const TensorView& view, std::int64_t offset) {
  return view.as<std::byte>() + offset * static_cast<std::int64_t>(dtype_size(view.dtype));
}

bool with_gelu(Epilogue epilogue) {
  return epilogue == Epilogue::kBiasGelu || epilogue == Epilogue::kBiasGeluTanh;
}

// The library wants what it keeps of GELU's argument in steps of 8 elements.
bool may_keep(const TensorView& kept) {
  const std::optional<MatrixLayout> layout = matrix_layout(kept);
  bool fits = layout && layout->ld % 8 == 0;
  for (int d = 0; d < kept.ndim() - 2; ++d) fits = fits && kept.stride(d) % 8 == 0;
  return fits;
}

}  // namespace

Product::Product(Backend& copies, int device, const TensorView& y, const TensorView& a,
                 const TensorView& b, const MatmulOptions& options, int kernel)
    : copies_(copies), device_(device), kernel_(kernel), options_(options), views_{y, a, b, {}} {
  if (with_gelu(options.epilogue)) views_.kept = options.pre_activation;
  choose_copies();
  choose_plan();
}

void Product::choose_copies() {
  const bool plain = options_.epilogue == Epilogue::kNone;
  copied_as_ = views_.a.dtype;
  copied_.a = !matrix_layout(views_.a);
  copied_.b = !matrix_layout(views_.b);
  copied_.y = !offers_result(views_.a.dtype, views_.y.dtype) ||
              (plain ? !matrix_layout(views_.y) : !dense_rows(views_.y));
  if (!views_.kept.defined()) return;
  // GELU reads and writes one dtype.
  const DType result = copied_.y ? copied_as_ : views_.y.dtype;
  copied_.kept = views_.kept.dtype != result || !dense_rows(views_.kept);
}

ProductViews Product::scratch_views(std::byte* scratch) const {
  ScratchCutter cutter(scratch);
  cutter.take(plan_ == nullptr ? 0 : plan_->workspace_bytes());
  const DType operands = views_.a.dtype;
  ProductViews views = views_;
  if (copied_.a) views.a = twin(views_.a, operands, cutter);
  if (copied_.b) views.b = twin(views_.b, operands, cutter);
  if (copied_.y) views.y = twin(views_.y, copied_as_, cutter);
  if (copied_.kept) views.kept = twin(views_.kept, views.y.dtype, cutter);
  return views;
}

ProductViews Product::arranged(const ProductViews& views) const {
  const ProductViews few = folded(views);
  return swapped_ ? swapped(few) : few;
}

void Product::choose_plan() {
  const bool gelu = with_gelu(options_.epilogue);
  ProductViews few = planned_views();
  if (bias_fits(few.y) && options_.epilogue == Epilogue::kBiasGeluTanh) {
    const bool kept = few.kept.defined();
    if (!kept && try_plan(few, few.y, LibraryEpilogue::kBiasGeluTanh)) return;
    if (kept && may_keep(few.kept) && try_plan(few, few.y, LibraryEpilogue::kBiasGeluTanhKept))
      return;
  }
  own_gelu_ = gelu;
  // What an own kernel goes on with is rounded once, after it.
  const bool narrow = few.y.dtype == DType::kBFloat16 || few.y.dtype == DType::kFloat16;
  if (narrow && options_.epilogue != Epilogue::kNone && (gelu || !bias_fits(few.y))) {
    copied_.y = true;
    copied_.kept = views_.kept.defined();
    copied_as_ = DType::kFloat32;
    few = planned_views();
  }
  const TensorView& target = gelu && few.kept.defined() ? few.kept : few.y;
  if (bias_fits(target) && try_plan(few, target, LibraryEpilogue::kBias)) return;
  own_bias_ = options_.epilogue != Epilogue::kNone;
  if (try_plan(few, target, LibraryEpilogue::kNone)) return;
  throw Unimplemented(fmt::format(
      "matmul: cuBLASLt has no deterministic kernel for {} x {} x {} of {} with a result of {}",
      shape_.m, shape_.n, shape_.k, dtype_name(shape_.operands), dtype_name(shape_.result)));
}

// The library adds biases of the result's dtype.
bool Product::bias_fits(const TensorView& result) const {
  const TensorView& bias = options_.bias;
  return options_.epilogue != Epilogue::kNone && views_.a.dtype != DType::kFloat64 &&
         bias.dtype == result.dtype && (bias.numel() == 1 || bias.stride(0) == 1);
}

ProductViews Product::planned_views() {
  const ProductViews few = folded(scratch_views(nullptr));
  swapped_ = matrix_layout(few.y)->transposed;
  return swapped_ ? swapped(few) : few;
}

bool Product::try_plan(ProductViews views, const TensorView& result, LibraryEpilogue epilogue) {
  views.y = result;
  shape_ = matmul_shape(views, epilogue);
  // The library's epilogues load biases as they store results.
  if (epilogue != LibraryEpilogue::kNone)
    shape_.y.alignment = std::min(shape_.y.alignment, address_alignment(options_.bias.data));
  plan_ = matmul_plan_of(device_, shape_, kernel_);
  return plan_ != nullptr;
}

std::size_t Product::scratch_bytes() const {
  const DType operands = views_.a.dtype;
  std::size_t bytes = scratch_piece(plan_->workspace_bytes());
  if (copied_.a) bytes += twin_bytes(views_.a, operands);
  if (copied_.b) bytes += twin_bytes(views_.b, operands);
  if (copied_.y) bytes += twin_bytes(views_.y, copied_as_);
  if (copied_.kept) bytes += twin_bytes(views_.kept, copied_.y ? copied_as_ : views_.y.dtype);
  return bytes;
}

void Product::run(const KernelContext& context, std::span<std::byte> scratch) const {
  check_internal(scratch.size() >= scratch_bytes(), "matmul: {} bytes of scratch, {} needed",
                 scratch.size(), scratch_bytes());
  const ProductViews views = scratch_views(scratch.data());
  KernelContext inner = context;
  inner.workspace = nullptr;
  const auto copy_in = [&](bool copied, const TensorView& to, const TensorView& from) {
    if (copied) copies_.copy(inner, without_repeats(to), without_repeats(from));
  };
  copy_in(copied_.a, views.a, views_.a);
  copy_in(copied_.b, views.b, views_.b);
  copy_in(copied_.y && options_.beta != 0.0f, views.y, views_.y);
  // The library adds to what GELU's argument is kept in, where GELU is not its own.
  if (options_.beta != 0.0f && own_gelu_ && views.kept.defined())
    copies_.copy(inner, views.kept, views.y);
  const ProductViews few = arranged(views);
  run_library(context, few, scratch.data());
  if (own_bias_ || own_gelu_) run_own_epilogue(context, few);
  if (copied_.y) copies_.copy(inner, views_.y, views.y);
  if (copied_.kept) copies_.copy(inner, views_.kept, views.kept);
}

void Product::run_library(const KernelContext& context, const ProductViews& views,
                          std::byte* workspace) const {
  const TensorView& target = own_gelu_ && views.kept.defined() ? views.kept : views.y;
  const bool kept = shape_.epilogue == LibraryEpilogue::kBiasGeluTanhKept;
  for (std::int64_t i = 0; i < loop_count(views.y); ++i) {
    MatmulRun run;
    run.y = at(target, loop_offset(target, i));
    run.a = at(views.a, loop_offset(views.a, i));
    run.b = at(views.b, loop_offset(views.b, i));
    if (shape_.epilogue != LibraryEpilogue::kNone) run.bias = options_.bias.data;
    if (kept) run.kept = at(views.kept, loop_offset(views.kept, i));
    run.alpha = options_.alpha;
    run.beta = options_.beta;
    call_log().add("matmul");
    plan_->run(stream_of(context), run, workspace);
  }
}

void Product::run_own_epilogue(const KernelContext& context, const ProductViews& views) const {
  const TensorView& x = own_gelu_ && views.kept.defined() ? views.kept : views.y;
  const int last = views.y.ndim() - 1;
  BiasGelu call;
  call.dtype = views.y.dtype;
  call.rows = views.y.size(last - 1);
  call.columns = views.y.size(last);
  call.x_row = matrix_layout(x)->ld;
  call.y_row = matrix_layout(views.y)->ld;
  if (last > 1) {
    call.batch = views.y.size(last - 2);
    call.x_batch = x.stride(last - 2);
    call.y_batch = views.y.stride(last - 2);
  }
  if (own_bias_) {
    call.bias = options_.bias.data;
    call.bias_dtype = options_.bias.dtype;
    call.bias_stride = options_.bias.stride(0);
  }
  if (own_gelu_)
    call.activation =
        options_.epilogue == Epilogue::kBiasGelu ? Activation::kGelu : Activation::kGeluTanh;
  for (std::int64_t i = 0; i < loop_count(views.y); ++i) {
    call.x = at(x, loop_offset(x, i));
    call.y = at(views.y, loop_offset(views.y, i));
    launch_bias_gelu(call, stream_of(context));
  }
}

}  // namespace meshloom::kernels::cuda
