// SPDX-License-Identifier: Apache-2.0
#include "kernels/cuda/attention/one_query.h"

#include <algorithm>

#include "kernels/base/integer_math.h"
#include "kernels/cuda/attention/head_views.h"
#include "kernels/cuda/attention/one_query_launch.h"
#include "kernels/cuda/host_views.h"
#include "kernels/cuda/scratch.h"

namespace meshloom::kernels::cuda {
namespace {

// Returns the address of entry `row` of a [B, H, S, D] view.
const void* row_data(const TensorView& view, std::int64_t row) {
  return view.as<std::byte>() +
         row * view.stride(0) * static_cast<std::int64_t>(dtype_size(view.dtype));
}

RowMemory row_memory(const TensorView& k, const TensorView& v, std::int64_t row) {
  return {row_data(k, row), row_data(v, row), k.size(2),   k.stride(1), k.stride(2),
          k.stride(3),      v.stride(1),      v.stride(2), v.stride(3)};
}

// Splits of the longest row; one where no row has a key.
void count_splits(OneQueryCall& call) {
  for (int row = 0; row < call.rows; ++row)
    call.splits =
        std::max(call.splits, divide_up<std::int64_t>(call.memories[row].length, kSplitKeys));
  call.splits = std::max<std::int64_t>(call.splits, 1);
}

// Launches for rows of `memory_of(row)`, kMostLaunchRows at a time.
template <class MemoryOf>
void run_rows(const KernelContext& context, const AttentionOutputs& out, const TensorView& q,
              std::int64_t kv_heads, float scale, MemoryOf&& memory_of) {
  OneQueryCall call;
  call.dtype = q.dtype;
  call.heads = q.size(1);
  call.kv_heads = kv_heads;
  call.scale = scale;
  const std::int64_t rows = q.size(0);
  for (std::int64_t first = 0; first < rows; first += kMostLaunchRows) {
    call.rows = static_cast<int>(std::min<std::int64_t>(kMostLaunchRows, rows - first));
    call.splits = 0;
    for (int row = 0; row < call.rows; ++row) call.memories[row] = memory_of(first + row);
    count_splits(call);
    call.q = head_view(rows_of(q, first, call.rows));
    call.o = head_view(rows_of(out.o, first, call.rows));
    call.lse = query_numbers(rows_of(out.lse, first, call.rows));
    call.partial =
        reserve_scratch(context, scratch_piece(one_query_bytes(call)), "attention_rows").data();
    launch_one_query(call, stream_of(context));
  }
}

}  // namespace

void one_query_attention(const KernelContext& context, const AttentionOutputs& out,
                         const AttentionInputs& in, const AttentionOptions& options) {
  check_heads(in);
  check_numbers(out.lse, "lse");
  run_rows(context, out, in.q, in.k.size(1), scale_of(in, options.scale),
           [&](std::int64_t row) { return row_memory(in.k, in.v, row); });
}

void one_query_rows(const KernelContext& context, const AttentionOutputs& out, const TensorView& q,
                    std::span<const AttentionMemory> memories, double scale) {
  if (memories.empty()) return;
  const AttentionInputs first{q, memories[0].k, memories[0].v};
  check_heads(first);
  check_numbers(out.lse, "lse");
  run_rows(context, out, q, memories[0].k.size(1), scale_of(first, scale), [&](std::int64_t row) {
    const AttentionMemory& memory = memories[static_cast<std::size_t>(row)];
    return row_memory(memory.k, memory.v, 0);
  });
}

}  // namespace meshloom::kernels::cuda
