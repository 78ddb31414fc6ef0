// SPDX-License-Identifier: Apache-2.0
// Elementwise functions: calls of Backend on CUDA.
#include "kernels/base/error.h"
#include "kernels/cuda/cuda_backend.h"
#include "kernels/cuda/elementwise_launch.h"
#include "kernels/cuda/host_views.h"

namespace meshloom::kernels::cuda {
namespace {

void check_one_dtype(const char* op, std::initializer_list<const TensorView*> views) {
  const DType dtype = (*views.begin())->dtype;
  for (const TensorView* view : views)
    if (view->dtype != dtype)
      throw Unimplemented(fmt::format("{}: dtypes {} and {} must be the same", op,
                                      dtype_name(dtype), dtype_name(view->dtype)));
}

}  // namespace

void CudaBackend::unary(const KernelContext& context, UnaryOp op, const TensorView& y,
                        const TensorView& x, double scalar) {
  if (y.numel() == 0) return;
  launch_unary(op, device_view(y), device_view(x), scalar, stream_of(context));
}

void CudaBackend::unary_backward(const KernelContext& context, UnaryOp op, const TensorView& dx,
                                 const TensorView& dy, const TensorView& x, const TensorView& y,
                                 double scalar) {
  if (dx.numel() == 0) return;
  // What an op's derivative does not read need not be given.
  const TensorView& saved = unary_backward_reads_output(op) ? y : x;
  launch_unary_backward(op, device_view(dx), device_view(dy),
                        device_view(saved.defined() ? saved : dy), scalar, stream_of(context));
}

void CudaBackend::binary(const KernelContext& context, BinaryOp op, const TensorView& y,
                         const TensorView& a, const TensorView& b) {
  if (y.numel() == 0) return;
  launch_binary(op, device_view(y), device_view(a), device_view(b), stream_of(context));
}

void CudaBackend::where(const KernelContext& context, const TensorView& y,
                        const TensorView& condition, const TensorView& a, const TensorView& b) {
  if (y.numel() == 0) return;
  check_one_dtype("where", {&y, &a, &b});
  launch_where(device_view(y), device_view(condition), device_view(a), device_view(b),
               stream_of(context));
}

void CudaBackend::triangle(const KernelContext& context, const TensorView& y, const TensorView& x,
                           bool upper, std::int64_t diagonal) {
  if (y.numel() == 0) return;
  check_one_dtype("triangle", {&y, &x});
  launch_triangle(device_view(y), device_view(x), upper, diagonal, stream_of(context));
}

void CudaBackend::swiglu(const KernelContext& context, const TensorView& y, const TensorView& gate,
                         const TensorView& up) {
  if (y.numel() == 0) return;
  launch_swiglu(device_view(y), device_view(gate), device_view(up), stream_of(context));
}

void CudaBackend::swiglu_backward(const KernelContext& context, const TensorView& dgate,
                                  const TensorView& dup, const TensorView& dy,
                                  const TensorView& gate, const TensorView& up) {
  if (dgate.numel() == 0) return;
  launch_swiglu_backward(device_view(dgate), device_view(dup), device_view(dy), device_view(gate),
                         device_view(up), stream_of(context));
}

}  // namespace meshloom::kernels::cuda
