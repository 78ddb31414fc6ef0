// SPDX-License-Identifier: Apache-2.0
// Matmul, attention and rotary embedding.
#include "tests/support/fenced_device/fenced_backend.h"

namespace meshloom::testing {
namespace {

// All that attention reads, forward and backward.
std::vector<Access> attention_reads(const kernels::AttentionInputs& inputs,
                                    const kernels::AttentionOptions& options) {
  return {reads("q", inputs.q),
          reads("k", inputs.k),
          reads("v", inputs.v),
          reads("query_positions", options.query_positions),
          reads("key_positions", options.key_positions),
          reads("bias", options.bias),
          reads("alibi_slopes", options.alibi_slopes),
          reads("query_documents", options.query_documents),
          reads("key_documents", options.key_documents)};
}

}  // namespace

void FencedBackend::matmul(const kernels::KernelContext& context, const TensorView& y,
                           const TensorView& a, const TensorView& b,
                           const kernels::MatmulOptions& options) {
  submit(context, "matmul",
         {writes("y", y), writes("pre_activation", options.pre_activation), reads("a", a),
          reads("b", b), reads("bias", options.bias), reads("scales.rows", options.scales.rows),
          reads("scales.columns", options.scales.columns),
          reads("scales.result", options.scales.result)},
         [=](auto& cpu, auto& own) { cpu.matmul(own, y, a, b, options); });
}

void FencedBackend::attention(const kernels::KernelContext& context,
                              const kernels::AttentionOutputs& outputs,
                              const kernels::AttentionInputs& inputs,
                              const kernels::AttentionOptions& options) {
  std::vector<Access> accesses = attention_reads(inputs, options);
  accesses.push_back(writes("o", outputs.o));
  accesses.push_back(writes("lse", outputs.lse));
  submit(context, "attention", accesses,
         [=](auto& cpu, auto& own) { cpu.attention(own, outputs, inputs, options); });
}

void FencedBackend::attention_rows(const kernels::KernelContext& context,
                                   const kernels::AttentionOutputs& outputs, const TensorView& q,
                                   std::span<const kernels::AttentionMemory> memories,
                                   double scale) {
  std::vector<Access> accesses = {writes("o", outputs.o), writes("lse", outputs.lse),
                                  reads("q", q)};
  for (const kernels::AttentionMemory& memory : memories) {
    accesses.push_back(reads("k", memory.k));
    accesses.push_back(reads("v", memory.v));
  }
  submit(context, "attention_rows", accesses,
         [outputs, q, rows = std::vector(memories.begin(), memories.end()), scale](
             auto& cpu, auto& own) { cpu.attention_rows(own, outputs, q, rows, scale); });
}

void FencedBackend::attention_backward(const kernels::KernelContext& context,
                                       const kernels::AttentionGrads& grads,
                                       const kernels::AttentionInputs& inputs,
                                       const kernels::AttentionOptions& options) {
  std::vector<Access> accesses = attention_reads(inputs, options);
  for (const Access& access :
       {reads("grad_o", grads.grad_o), reads("o", grads.o), reads("lse", grads.lse),
        reads("delta", grads.delta), writes("dq", grads.dq), writes("dk", grads.dk),
        writes("dv", grads.dv), writes("grad_bias", grads.grad_bias)})
    accesses.push_back(access);
  submit(context, "attention_backward", accesses,
         [=](auto& cpu, auto& own) { cpu.attention_backward(own, grads, inputs, options); });
}

void FencedBackend::attention_delta(const kernels::KernelContext& context, const TensorView& delta,
                                    const TensorView& grad_o, const TensorView& o) {
  submit(context, "attention_delta",
         {writes("delta", delta), reads("grad_o", grad_o), reads("o", o)},
         [=](auto& cpu, auto& own) { cpu.attention_delta(own, delta, grad_o, o); });
}

void FencedBackend::rope(const kernels::KernelContext& context, const TensorView& y,
                         const TensorView& x, const kernels::RopeOptions& options) {
  submit(context, "rope",
         {writes("y", y), reads("x", x), reads("cos", options.cos), reads("sin", options.sin),
          reads("positions", options.positions)},
         [=](auto& cpu, auto& own) { cpu.rope(own, y, x, options); });
}

}  // namespace meshloom::testing
