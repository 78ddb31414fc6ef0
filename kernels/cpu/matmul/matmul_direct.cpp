// SPDX-License-Identifier: Apache-2.0
#include "kernels/cpu/matmul/matmul_direct.h"

#include "kernels/cpu/cpu_backend.h"
#include "kernels/cpu/cpu_features.h"
#include "kernels/cpu/matmul/few_rows.h"
#include "kernels/cpu/matmul/library_threads.h"
#include "kernels/cpu/matmul/matmul_epilogue.h"
#include "kernels/cpu/matmul/packed_product.h"
#include "kernels/cpu/simd/targets.h"
#include "kernels/cpu/span_workspace.h"

namespace meshloom::kernels::cpu {
namespace {

// The few rows of a are read in pairs.
bool pairs_fit(const Gemm& g) {
  return bfloat16_dot_products() && reinterpret_cast<std::uintptr_t>(g.a.data) % 4 == 0 &&
         (g.m == 1 || g.a.ld % 2 == 0);
}

}  // namespace

std::optional<GemmOperand> direct_operand(const TensorView& view, DType dtype) {
  if (view.dtype != dtype) return std::nullopt;
  const std::int64_t rows = view.size(0), columns = view.size(1);
  const std::int64_t row_stride = view.stride(0), column_stride = view.stride(1);
  if ((columns == 1 || column_stride == 1) && (rows == 1 || row_stride >= columns))
    return GemmOperand{view.data, rows == 1 ? columns : row_stride, false};
  if ((rows == 1 || row_stride == 1) && (columns == 1 || column_stride >= rows))
    return GemmOperand{view.data, columns == 1 ? rows : column_stride, true};
  return std::nullopt;
}

std::optional<DirectProduct> DirectProduct::plan(Threads threads, const TensorView& y,
                                                 const TensorView& a, const TensorView& b,
                                                 const MatmulOptions& options,
                                                 const TensorView& pre_activation) {
  if (a.dtype != b.dtype || (a.dtype != DType::kFloat32 && a.dtype != DType::kBFloat16)) return {};
  const std::optional<GemmOperand> left = direct_operand(a, a.dtype);
  const std::optional<GemmOperand> right = direct_operand(b, a.dtype);
  if (!left || !right) return {};
  DirectProduct product(y, options, pre_activation);
  product.operands_ = a.dtype;
  product.gemm_ = {y.size(0), y.size(1), a.size(1),     *left,       *right,
                   nullptr,   y.size(1), options.alpha, options.beta};
  product.provider_ =
      choose_matmul_provider(cpu_class(), a.dtype, product.gemm_, options.batch_invariant);
  switch (product.provider_) {
    case MatmulProvider::kFewRows:
      if (!product.fits_few_rows()) return {};
      break;
    case MatmulProvider::kPacked:
      if (!runs_avx512() || !product.fits_target()) return {};
      product.packed_ = plan_packed_product(
          product.gemm_,
          {a.dtype, product.result_,
           a.dtype == DType::kBFloat16 && tile_registers() != TileRegisters::kNone},
          threads);
      product.provider_bytes_ = product.packed_.scratch_bytes();
      break;
    case MatmulProvider::kOneDnnMatmul: {
      if (!product.fits_target()) return {};
      if (product.biased() && (options.bias.dtype != a.dtype || !options.bias.contiguous()))
        return {};
      const LibraryThreads library(threads);
      product.provider_bytes_ = onednn_matmul_scratch_bytes(
          product.gemm_, {a.dtype, product.result_, product.biased()}, threads);
      break;
    }
    case MatmulProvider::kOneDnnSgemm:
    case MatmulProvider::kOpenBlas: return {};
  }
  return product;
}

// Sums go to y where it is float32 with dense rows, else to the scratch.
bool DirectProduct::fits_few_rows() {
  if (operands_ == DType::kBFloat16 && !pairs_fit(gemm_)) return false;
  const std::optional<GemmOperand> rows = direct_operand(y_, DType::kFloat32);
  if (rows && !rows->transposed) {
    gemm_.y = y_.data;
    gemm_.ldy = rows->ld;
  }
  return true;
}

// The product with its bias is stored where GELU's argument is kept, or in y.
bool DirectProduct::fits_target() {
  const TensorView& target = with_gelu() && pre_.defined() ? pre_ : y_;
  if (target.dtype != operands_ && target.dtype != DType::kFloat32) return false;
  const std::optional<GemmOperand> rows = direct_operand(target, target.dtype);
  if (!rows || rows->transposed) return false;
  gemm_.y = target.data;
  gemm_.ldy = rows->ld;
  result_ = target.dtype;
  return true;
}

const char* DirectProduct::route() const {
  switch (provider_) {
    case MatmulProvider::kFewRows: return "few rows";
    case MatmulProvider::kPacked: return "packed";
    default: return "primitive";
  }
}

std::size_t DirectProduct::scratch_bytes() const {
  if (provider_ == MatmulProvider::kOneDnnMatmul) return provider_bytes_;
  return provider_bytes_ + (biased() ? piece_bytes<float>(gemm_.n) : 0) +
         (gemm_.y == nullptr ? piece_bytes<float>(gemm_.m * gemm_.n) : 0);
}

void DirectProduct::run(const KernelContext& context, std::span<std::byte> scratch) const {
  // A product adds to what it is stored in.
  if (gemm_.beta != 0.0f && with_gelu() && pre_.defined() && gemm_.y == pre_.data)
    cpu_backend().copy(context, pre_, y_);
  switch (provider_) {
    case MatmulProvider::kFewRows: return run_few_rows(context, scratch);
    case MatmulProvider::kPacked: return run_packed(context, scratch);
    default: return run_primitive(context, scratch);
  }
}

const float* DirectProduct::bias_values(const KernelContext& context, float* room) const {
  cpu_backend().copy(context, make_view(room, DType::kFloat32, {gemm_.n}), options_->bias);
  return room;
}

void DirectProduct::run_few_rows(const KernelContext& context, std::span<std::byte> scratch) const {
  SpanCutter cutter(scratch);
  Gemm gemm = gemm_;
  const bool in_place = gemm.y != nullptr;
  if (!in_place) gemm.y = cutter.take<float>(gemm.m * gemm.n);
  few_rows_product(context.threads, operands_, gemm);
  auto* sums = static_cast<float*>(gemm.y);
  if (biased()) {
    const float* bias = bias_values(context, cutter.take<float>(gemm.n));
    apply_epilogue<float>(context, options_->epilogue, {sums, gemm.m, gemm.n, gemm.ldy}, bias, y_,
                          pre_);
  } else if (!in_place) {
    cpu_backend().copy(context, y_, make_view(sums, DType::kFloat32, {gemm.m, gemm.n}));
  }
}

void DirectProduct::run_packed(const KernelContext& context, std::span<std::byte> scratch) const {
  SpanCutter cutter(scratch);
  const float* bias = biased() ? bias_values(context, cutter.take<float>(gemm_.n)) : nullptr;
  packed_product(gemm_, packed_, bias, cutter.rest().data());
  if (with_gelu()) apply_gelu(context);
}

void DirectProduct::run_primitive(const KernelContext& context,
                                  std::span<std::byte> scratch) const {
  {
    const LibraryThreads library(context.threads);
    onednn_matmul(gemm_, {operands_, result_, biased()}, options_->bias.data, context.threads,
                  scratch.data());
  }
  if (with_gelu()) apply_gelu(context);
}

void DirectProduct::apply_gelu(const KernelContext& context) const {
  cpu_backend().unary(
      context, options_->epilogue == Epilogue::kBiasGelu ? UnaryOp::kGelu : UnaryOp::kGeluTanh, y_,
      pre_.defined() ? pre_ : y_, 0.0);
}

}  // namespace meshloom::kernels::cpu
