// SPDX-License-Identifier: Apache-2.0
#include "tests/support/fenced_device/fenced_backend.h"

namespace meshloom::testing {

void FencedBackend::unary(const kernels::KernelContext& context, kernels::UnaryOp op,
                          const TensorView& y, const TensorView& x, double scalar) {
  submit(context, "unary", {writes("y", y), reads("x", x)},
         [=](auto& cpu, auto& own) { cpu.unary(own, op, y, x, scalar); });
}

void FencedBackend::unary_backward(const kernels::KernelContext& context, kernels::UnaryOp op,
                                   const TensorView& dx, const TensorView& dy, const TensorView& x,
                                   const TensorView& y, double scalar) {
  submit(context, "unary_backward",
         {writes("dx", dx), reads("dy", dy), reads("x", x), reads("y", y)},
         [=](auto& cpu, auto& own) { cpu.unary_backward(own, op, dx, dy, x, y, scalar); });
}

void FencedBackend::binary(const kernels::KernelContext& context, kernels::BinaryOp op,
                           const TensorView& y, const TensorView& a, const TensorView& b) {
  submit(context, "binary", {writes("y", y), reads("a", a), reads("b", b)},
         [=](auto& cpu, auto& own) { cpu.binary(own, op, y, a, b); });
}

void FencedBackend::where(const kernels::KernelContext& context, const TensorView& y,
                          const TensorView& condition, const TensorView& a, const TensorView& b) {
  submit(context, "where",
         {writes("y", y), reads("condition", condition), reads("a", a), reads("b", b)},
         [=](auto& cpu, auto& own) { cpu.where(own, y, condition, a, b); });
}

void FencedBackend::triangle(const kernels::KernelContext& context, const TensorView& y,
                             const TensorView& x, bool upper, std::int64_t diagonal) {
  submit(context, "triangle", {writes("y", y), reads("x", x)},
         [=](auto& cpu, auto& own) { cpu.triangle(own, y, x, upper, diagonal); });
}

void FencedBackend::swiglu(const kernels::KernelContext& context, const TensorView& y,
                           const TensorView& gate, const TensorView& up) {
  submit(context, "swiglu", {writes("y", y), reads("gate", gate), reads("up", up)},
         [=](auto& cpu, auto& own) { cpu.swiglu(own, y, gate, up); });
}

void FencedBackend::swiglu_backward(const kernels::KernelContext& context, const TensorView& dgate,
                                    const TensorView& dup, const TensorView& dy,
                                    const TensorView& gate, const TensorView& up) {
  submit(context, "swiglu_backward",
         {writes("dgate", dgate), writes("dup", dup), reads("dy", dy), reads("gate", gate),
          reads("up", up)},
         [=](auto& cpu, auto& own) { cpu.swiglu_backward(own, dgate, dup, dy, gate, up); });
}

void FencedBackend::dropout(const kernels::KernelContext& context, const TensorView& y,
                            const TensorView& x, const kernels::DropoutOptions& options) {
  submit(context, "dropout", {writes("y", y), reads("x", x)},
         [=](auto& cpu, auto& own) { cpu.dropout(own, y, x, options); });
}

void FencedBackend::fill_normal(const kernels::KernelContext& context, const TensorView& dst,
                                const PhiloxStream& random, std::uint64_t first_index, float mean,
                                float std) {
  submit(context, "fill_normal", {writes("dst", dst)},
         [=](auto& cpu, auto& own) { cpu.fill_normal(own, dst, random, first_index, mean, std); });
}

void FencedBackend::fill_uniform(const kernels::KernelContext& context, const TensorView& dst,
                                 const PhiloxStream& random, std::uint64_t first_index, float low,
                                 float high) {
  submit(context, "fill_uniform", {writes("dst", dst)},
         [=](auto& cpu, auto& own) { cpu.fill_uniform(own, dst, random, first_index, low, high); });
}

}  // namespace meshloom::testing
