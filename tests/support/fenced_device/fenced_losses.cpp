// SPDX-License-Identifier: Apache-2.0
// Losses and optimizer steps.
#include "tests/support/fenced_device/fenced_backend.h"

namespace meshloom::testing {
namespace {

std::vector<Access> step_accesses(std::span<const kernels::OptimizerTensor> tensors,
                                  const kernels::StepScalars& scalars) {
  std::vector<Access> accesses = {reads("lr", scalars.lr), reads("step", scalars.step),
                                  reads("grad_factor", scalars.grad_factor),
                                  reads("grad_norm", scalars.grad_norm),
                                  reads("loss", scalars.loss)};
  for (const kernels::OptimizerTensor& tensor : tensors)
    for (const Access& access :
         {writes("master", tensor.master), reads("grad", tensor.grad),
          writes("moment1", tensor.moment1), writes("moment2", tensor.moment2),
          writes("working", tensor.working)})
      accesses.push_back(access);
  return accesses;
}

}  // namespace

void FencedBackend::cross_entropy(const kernels::KernelContext& context,
                                  const kernels::CrossEntropyRows& rows,
                                  const kernels::CrossEntropyOptions& options) {
  submit(context, "cross_entropy",
         {writes("losses", rows.losses), writes("lse", rows.lse), reads("logits", rows.logits),
          reads("targets", rows.targets)},
         [=](auto& cpu, auto& own) { cpu.cross_entropy(own, rows, options); });
}

void FencedBackend::combine_class_slices(const kernels::KernelContext& context,
                                         const kernels::CrossEntropyRows& rows,
                                         const TensorView& slices, std::int64_t ignore_index) {
  submit(context, "combine_class_slices",
         {writes("losses", rows.losses), writes("lse", rows.lse), reads("targets", rows.targets),
          reads("slices", slices)},
         [=](auto& cpu, auto& own) { cpu.combine_class_slices(own, rows, slices, ignore_index); });
}

void FencedBackend::cross_entropy_backward(const kernels::KernelContext& context,
                                           const TensorView& dlogits, const TensorView& grad_losses,
                                           const kernels::CrossEntropyRows& rows,
                                           const kernels::CrossEntropyOptions& options) {
  submit(context, "cross_entropy_backward",
         {writes("dlogits", dlogits), reads("grad_losses", grad_losses),
          reads("logits", rows.logits), reads("targets", rows.targets), reads("lse", rows.lse)},
         [=](auto& cpu, auto& own) {
           cpu.cross_entropy_backward(own, dlogits, grad_losses, rows, options);
         });
}

void FencedBackend::output_loss_chunk(const kernels::KernelContext& context,
                                      const kernels::CrossEntropyRows& rows,
                                      const kernels::OutputProjection& projection,
                                      const kernels::CrossEntropyOptions& options) {
  submit(context, "output_loss_chunk",
         {writes("logits", rows.logits), writes("losses", rows.losses), writes("lse", rows.lse),
          reads("targets", rows.targets), reads("hidden", projection.hidden),
          reads("weight", projection.weight), reads("bias", projection.bias)},
         [=](auto& cpu, auto& own) { cpu.output_loss_chunk(own, rows, projection, options); });
}

void FencedBackend::output_loss_products(const kernels::KernelContext& context,
                                         const kernels::OutputLossGrads& grads,
                                         const TensorView& gradient,
                                         const kernels::OutputProjection& projection) {
  submit(context, "output_loss_products",
         {writes("dhidden", grads.dhidden), writes("dweight", grads.dweight),
          writes("dbias", grads.dbias), reads("gradient", gradient),
          reads("hidden", projection.hidden), reads("weight", projection.weight)},
         [=](auto& cpu, auto& own) { cpu.output_loss_products(own, grads, gradient, projection); });
}

void FencedBackend::adam_step(const kernels::KernelContext& context,
                              std::span<const kernels::OptimizerTensor> tensors,
                              const kernels::StepScalars& scalars,
                              const kernels::AdamOptions& options) {
  submit(context, "adam_step", step_accesses(tensors, scalars),
         [=, own_tensors = std::vector(tensors.begin(), tensors.end())](auto& cpu, auto& own) {
           cpu.adam_step(own, own_tensors, scalars, options);
         });
}

void FencedBackend::sgd_step(const kernels::KernelContext& context,
                             std::span<const kernels::OptimizerTensor> tensors,
                             const kernels::StepScalars& scalars,
                             const kernels::SgdOptions& options) {
  submit(context, "sgd_step", step_accesses(tensors, scalars),
         [=, own_tensors = std::vector(tensors.begin(), tensors.end())](auto& cpu, auto& own) {
           cpu.sgd_step(own, own_tensors, scalars, options);
         });
}

}  // namespace meshloom::testing
