// SPDX-License-Identifier: Apache-2.0
#include "tests/bench/attention_plans.h"

#include <fmt/format.h>

#include <functional>
#include <vector>

#include "kernels/cuda/attention/attention_table.h"

namespace meshloom::bench {
namespace {

namespace cuda = kernels::cuda;

// Addresses are looked at by the rules, and never followed.
TensorView made(DType dtype, const Shape& shape) {
  return make_view(reinterpret_cast<void*>(4096), dtype, shape, {DeviceKind::kCuda, 0});
}

struct Call {
  const char* name;
  DType dtype = DType::kBFloat16;
  std::int64_t heads = 12, kv_heads = 12, queries = 1024, keys = 1024, dims = 64;
  std::function<void(kernels::AttentionOptions&)> options = [](kernels::AttentionOptions& o) {
    o.is_causal = true;
  };
  bool carry = false;
};

std::vector<Call> calls() {
  const auto causal_and = [](auto change) {
    return [change](kernels::AttentionOptions& o) {
      o.is_causal = true;
      change(o);
    };
  };
  using Options = kernels::AttentionOptions;
  std::vector<Call> all = {{"GPT-2, causal"},
                           {"Llama, shared keys"},
                           {"BERT, full"},
                           {"float32"},
                           {"heads of 128"},
                           {"heads of 256"},
                           {"sliding window"},
                           {"window on both sides"},
                           {"dropout"},
                           {"packed documents"},
                           {"positions (load balanced ring)"},
                           {"a block of a ring"},
                           {"ALiBi"},
                           {"bias"},
                           {"a token of generation"}};
  all[1].heads = 32;
  all[1].kv_heads = 8;
  all[2].options = [](Options&) {};
  all[3].dtype = DType::kFloat32;
  all[4].dims = 128;
  all[5].dims = 256;
  all[6].options = causal_and([](Options& o) { o.window_left = 255; });
  all[7].options = [](Options& o) { o.window_left = o.window_right = 128; };
  all[8].options = causal_and([](Options& o) { o.dropout_p = 0.1f; });
  all[9].options = causal_and([](Options& o) {
    o.query_documents = o.key_documents = made(DType::kInt64, {16, 1024});
  });
  all[10].options = causal_and(
      [](Options& o) { o.query_positions = o.key_positions = made(DType::kInt64, {1024}); });
  all[11].carry = true;
  all[12].options = causal_and([](Options& o) { o.alibi_slopes = made(DType::kFloat32, {12}); });
  all[13].options = [](Options& o) { o.bias = made(DType::kFloat32, {16, 12, 1024, 1024}); };
  all[14].queries = 1;
  all[14].options = causal_and([](Options& o) { o.query_offset = 1023; });
  return all;
}

void print_choice(const char* name, const char* pass, const cuda::AttentionChoice& choice) {
  fmt::print("{:<32} {:<9} {:<20} {}\n", name, pass, cuda::attention_code_name(choice.code),
             choice.sdpa.why_not == nullptr ? "-" : choice.sdpa.why_not);
}

}  // namespace

int print_attention_plans() {
  fmt::print("attention on cuda, table {}\n{:<32} {:<9} {:<20} {}\n", cuda::kAttentionTableVersion,
             "call", "pass", "computed by", "cuDNN is not asked for");
  for (const Call& call : calls()) {
    const Shape queries{16, call.heads, call.queries, call.dims};
    const Shape keys{16, call.kv_heads, call.keys, call.dims};
    const kernels::AttentionInputs in{made(call.dtype, queries), made(call.dtype, keys),
                                      made(call.dtype, keys)};
    const TensorView lse = made(DType::kFloat32, {16, call.heads, call.queries});
    kernels::AttentionOptions options;
    call.options(options);
    const DType wide = call.carry ? DType::kFloat32 : call.dtype;
    print_choice(call.name, "forward",
                 cuda::choose_attention({made(wide, queries), lse, call.carry}, in, options));
    if (call.queries == 1) continue;
    kernels::AttentionGrads grads;
    grads.o = grads.grad_o = made(call.dtype, queries);
    grads.lse = grads.delta = lse;
    grads.dq = made(wide, queries);
    grads.dk = grads.dv = made(wide, keys);
    grads.accumulate = call.carry;
    print_choice(call.name, "backward", cuda::choose_attention(grads, in, options));
  }
  return 0;
}

}  // namespace meshloom::bench
