// SPDX-License-Identifier: Apache-2.0
// Reductions, softmax and norms, embedding and ids.
#include "tests/support/fenced_device/fenced_backend.h"

namespace meshloom::testing {
namespace {

std::vector<Access> with_inputs(std::vector<Access> accesses, std::span<const TensorView> xs) {
  for (const TensorView& x : xs) accesses.push_back(reads("xs", x));
  return accesses;
}

}  // namespace

void FencedBackend::reduce(const kernels::KernelContext& context, kernels::ReduceOp op,
                           const TensorView& y, const TensorView& x, double correction) {
  submit(context, "reduce", {writes("y", y), reads("x", x)},
         [=](auto& cpu, auto& own) { cpu.reduce(own, op, y, x, correction); });
}

void FencedBackend::sum_of_squares(const kernels::KernelContext& context, const TensorView& out,
                                   std::span<const TensorView> xs, bool accumulate) {
  submit(context, "sum_of_squares", with_inputs({writes("out", out)}, xs),
         [out, views = std::vector(xs.begin(), xs.end()), accumulate](auto& cpu, auto& own) {
           cpu.sum_of_squares(own, out, views, accumulate);
         });
}

void FencedBackend::first_nonfinite(const kernels::KernelContext& context, const TensorView& index,
                                    std::span<const TensorView> xs) {
  submit(context, "first_nonfinite", with_inputs({writes("index", index)}, xs),
         [index, views = std::vector(xs.begin(), xs.end())](auto& cpu, auto& own) {
           cpu.first_nonfinite(own, index, views);
         });
}

void FencedBackend::clip_factor(const kernels::KernelContext& context, const TensorView& norm,
                                const TensorView& factor, const TensorView& sum_of_squares,
                                double max_norm) {
  submit(
      context, "clip_factor",
      {writes("norm", norm), writes("factor", factor), reads("sum_of_squares", sum_of_squares)},
      [=](auto& cpu, auto& own) { cpu.clip_factor(own, norm, factor, sum_of_squares, max_norm); });
}

void FencedBackend::softmax(const kernels::KernelContext& context, const TensorView& y,
                            const TensorView& x, bool log) {
  submit(context, "softmax", {writes("y", y), reads("x", x)},
         [=](auto& cpu, auto& own) { cpu.softmax(own, y, x, log); });
}

void FencedBackend::softmax_backward(const kernels::KernelContext& context, const TensorView& dx,
                                     const TensorView& dy, const TensorView& y, bool log) {
  submit(context, "softmax_backward", {writes("dx", dx), reads("dy", dy), reads("y", y)},
         [=](auto& cpu, auto& own) { cpu.softmax_backward(own, dx, dy, y, log); });
}

void FencedBackend::norm(const kernels::KernelContext& context, const kernels::NormViews& views,
                         const kernels::NormOptions& options) {
  submit(context, "norm",
         {writes("y", views.y), writes("sum", views.sum), writes("mean", views.mean),
          writes("rstd", views.rstd), reads("x", views.x), reads("residual", views.residual),
          reads("weight", views.weight), reads("bias", views.bias)},
         [=](auto& cpu, auto& own) { cpu.norm(own, views, options); });
}

void FencedBackend::norm_backward(const kernels::KernelContext& context,
                                  const kernels::NormGrads& grads) {
  submit(context, "norm_backward",
         {writes("dx", grads.dx), writes("dweight", grads.dweight), writes("dbias", grads.dbias),
          reads("dy", grads.dy), reads("x", grads.x), reads("weight", grads.weight),
          reads("mean", grads.mean), reads("rstd", grads.rstd)},
         [=](auto& cpu, auto& own) { cpu.norm_backward(own, grads); });
}

void FencedBackend::embedding(const kernels::KernelContext& context, const TensorView& y,
                              const TensorView& weight, const TensorView& ids) {
  submit(context, "embedding", {writes("y", y), reads("weight", weight), reads("ids", ids)},
         [=](auto& cpu, auto& own) { cpu.embedding(own, y, weight, ids); });
}

void FencedBackend::embedding_backward(const kernels::KernelContext& context,
                                       const TensorView& dweight, const TensorView& dy,
                                       const TensorView& ids, std::int64_t padding_idx) {
  submit(context, "embedding_backward",
         {writes("dweight", dweight), reads("dy", dy), reads("ids", ids)},
         [=](auto& cpu, auto& own) { cpu.embedding_backward(own, dweight, dy, ids, padding_idx); });
}

void FencedBackend::slice_ids(const kernels::KernelContext& context, const TensorView& places,
                              const TensorView& ids, const kernels::IdSlice& slice) {
  submit(context, "slice_ids", {writes("places", places), reads("ids", ids)},
         [=, ranges = std::vector(slice.ranges.begin(), slice.ranges.end())](auto& cpu, auto& own) {
           cpu.slice_ids(own, places, ids, {ranges, slice.special, slice.special_place});
         });
}

void FencedBackend::first_id_outside(const kernels::KernelContext& context, const TensorView& found,
                                     const TensorView& ids, std::int64_t limit,
                                     std::optional<std::int64_t> allowed) {
  submit(context, "first_id_outside", {writes("found", found), reads("ids", ids)},
         [=](auto& cpu, auto& own) { cpu.first_id_outside(own, found, ids, limit, allowed); });
}

void FencedBackend::count_ids(const kernels::KernelContext& context, const TensorView& count,
                              const TensorView& ids, std::int64_t id) {
  submit(context, "count_ids", {writes("count", count), reads("ids", ids)},
         [=](auto& cpu, auto& own) { cpu.count_ids(own, count, ids, id); });
}

}  // namespace meshloom::testing
