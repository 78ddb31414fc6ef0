// SPDX-License-Identifier: Apache-2.0
#include "daemon/comm/symm_mem/fused/fused_checks.h"

#include "daemon/comm/symm_mem/fused/local_product.h"
#include "kernels/base/error.h"

namespace meshloom::comm {
namespace {

void check_local(const char* op, const char* name, const Tensor& x) {
  check(x.defined(), "{}: {} is not given", op, name);
  check(!x.has_layout(), "{}: {} {} has a layout, expected this rank's own tensor", op, name,
        x.shape());
  check(x.device() == kCpuDevice, "{}: {} is not in host memory", op, name);
}

void check_float32(const char* op, const char* name, const Tensor& x) {
  check_local(op, name, x);
  check(x.dtype() == DType::kFloat32, "{}: {} is {}, expected float32", op, name,
        dtype_name(x.dtype()));
}

}  // namespace

void check_matrices(const char* op, const Tensor& a, const Tensor& b) {
  check_local(op, "A", a);
  check_local(op, "B", b);
  check(a.ndim() >= 2, "{}: A has shape {}, expected at least 2 dims", op, a.shape());
  check(b.ndim() == 2, "{}: B has shape {}, expected 2 dims", op, b.shape());
}

void check_inner(const char* op, const Tensor& a, const Tensor& b) {
  check(a.size(-1) == b.size(0), "{}: A of shape {} and B of shape {}: inner sizes are {} and {}",
        op, a.shape(), b.shape(), a.size(-1), b.size(0));
}

void check_summands(const char* op, const Tensor& first_a, const Tensor& first_b, const Tensor& a,
                    const Tensor& b) {
  Shape first = first_a.shape(), shape = a.shape();
  first[first.size() - 1] = first_b.size(1);
  shape[shape.size() - 1] = b.size(1);
  check(shape == first && a.dtype() == first_a.dtype(),
        "{}: products of shapes {} and {}, of {} and {}, cannot be added", op, first, shape,
        dtype_name(first_a.dtype()), dtype_name(a.dtype()));
}

void check_plain_dtypes(const char* op, const Tensor& a, const Tensor& b,
                        const std::optional<DType>& out) {
  check(dtype_is_floating(a.dtype()) && !is_float8(a.dtype()),
        "{}: A is {}, expected float32, float64, bfloat16 or float16", op, dtype_name(a.dtype()));
  check(a.dtype() == b.dtype(), "{}: A is {} and B {}, expected one dtype", op,
        dtype_name(a.dtype()), dtype_name(b.dtype()));
  check(!out || *out == b.dtype() || (*out == DType::kFloat32 && b.dtype() != DType::kFloat64),
        "{}: out_dtype is {}, expected {} or float32", op, dtype_name(out.value_or(b.dtype())),
        dtype_name(b.dtype()));
}

void check_reduce_op(const char* op, ReduceOp reduce_op) {
  check(reduce_op == ReduceOp::kSum || reduce_op == ReduceOp::kAvg,
        "{}: reduce_op is {}, expected sum or avg", op, reduce_op_name(reduce_op));
}

void check_scaled(const char* op, const Tensor& a, const Tensor& b, const Tensor& a_scale,
                  const Tensor& b_scale) {
  check(is_float8(a.dtype()) && is_float8(b.dtype()),
        "{}: A is {} and B {}, expected float8_e4m3 or float8_e5m2", op, dtype_name(a.dtype()),
        dtype_name(b.dtype()));
  check_float32(op, "A_scale", a_scale);
  check_float32(op, "B_scale", b_scale);
  Shape rows = a.shape();
  rows[a.ndim() - 1] = 1;
  check(a_scale.numel() == 1 || a_scale.shape() == rows,
        "{}: A_scale has shape {}, expected one element or {}", op, a_scale.shape(), rows);
  const Shape columns{1, b.size(1)};
  check(b_scale.numel() == 1 || b_scale.shape() == columns,
        "{}: B_scale has shape {}, expected one element or {}", op, b_scale.shape(), columns);
}

void check_scaled_terms(const char* op, const Tensor& b, const Tensor& bias,
                        const Tensor& result_scale, DType out) {
  check(dtype_is_floating(out) && out != DType::kFloat64,
        "{}: out_dtype is {}, expected float32, bfloat16, float16 or float8", op, dtype_name(out));
  if (bias.defined()) {
    check_local(op, "bias", bias);
    check(bias.shape() == Shape{b.size(1)}, "{}: bias has shape {}, expected {}", op, bias.shape(),
          Shape{b.size(1)});
    check(bias.dtype() == DType::kFloat32 || bias.dtype() == out,
          "{}: bias is {}, expected float32 or {}", op, dtype_name(bias.dtype()), dtype_name(out));
  }
  if (result_scale.defined()) {
    check_float32(op, "result_scale", result_scale);
    check(result_scale.numel() == 1, "{}: result_scale has shape {}, expected one element", op,
          result_scale.shape());
  }
}

void check_list(const char* op, const char* name, std::size_t entries, std::size_t bs) {
  check(entries == 0 || entries == bs, "{}: {} {} for {} Bs", op, entries, name, bs);
}

}  // namespace meshloom::comm
