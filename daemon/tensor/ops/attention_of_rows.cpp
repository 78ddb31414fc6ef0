// SPDX-License-Identifier: Apache-2.0
#include "daemon/tensor/layout.h"
#include "daemon/tensor/ops/attention.h"
#include "daemon/tensor/ops/attention_part.h"
#include "daemon/tensor/ops/op_support.h"
#include "daemon/tensor/ops/shape.h"
#include "kernels/base/error.h"

namespace meshloom::ops {
namespace {

constexpr const char* kAttentionOfRows = "attention_of_rows";

void check_arguments(const Tensor& q, std::span<const KeyValue> rows) {
  check_floating(kAttentionOfRows, q);
  check(q.ndim() == 4 && q.size(2) == 1, "{}: q {}, expected [B,H,1,D]", kAttentionOfRows,
        q.shape());
  check(!rows.empty() && q.size(0) == static_cast<std::int64_t>(rows.size()),
        "{}: q {} for the keys and values of {} rows", kAttentionOfRows, q.shape(), rows.size());
  const std::int64_t dims_v = rows[0].v.size(-1);
  for (const auto& [k, v] : rows) {
    check_same_dtype(kAttentionOfRows, q, k);
    check_same_dtype(kAttentionOfRows, q, v);
    const bool fits = k.ndim() == 4 && v.ndim() == 4 && k.size(0) == 1 && v.size(0) == 1 &&
                      k.size(1) == v.size(1) && k.size(1) > 0 && q.size(1) % k.size(1) == 0 &&
                      k.size(2) == v.size(2) && k.size(2) > 0 && k.size(3) == q.size(3) &&
                      v.size(3) == dims_v;
    check(fits, "{}: a row's k {} and v {} do not fit q {} and values of {}", kAttentionOfRows,
          k.shape(), v.shape(), q.shape(), dims_v);
  }
}

/// Of tensors without a layout.
Tensor attend_rows(const Tensor& q, std::span<const KeyValue> rows, double scale) {
  ExecutionContext& context = q.context();
  const Tensor o = empty_heads(context, {q.size(0), q.size(1), 1, rows[0].v.size(3)}, q.dtype());
  const Tensor lse = empty(context, {q.size(0), q.size(1), 1}, DType::kFloat32);
  std::vector<KeyValue> dense;
  std::vector<kernels::AttentionMemory> memories;
  for (const auto& [k, v] : rows) {
    dense.push_back({dense_rows(k), dense_rows(v)});
    memories.push_back({dense.back().k.view(), dense.back().v.view()});
  }
  const Tensor queries = dense_rows(q);
  context.backend().attention_rows(context.kernel_context(), {o.view(), lse.view(), false},
                                   queries.view(), memories, scale);
  return o;
}

/// This rank's heads.
Tensor attend_rows_part(const LocalCall& call, double scale) {
  const Tensor& q = call.inputs[0];
  std::vector<KeyValue> rows;
  for (std::size_t i = 1; i < call.inputs.size(); i += 2) {
    const auto read = [&](const Tensor& x) {
      return heads_read(x, q.size(1), call.attributes.dims);
    };
    rows.push_back({read(call.inputs[i]), read(call.inputs[i + 1])});
  }
  return attend_rows(q, rows, scale);
}

}  // namespace

Tensor attention_of_rows(const Tensor& q, std::span<const KeyValue> rows, double scale) {
  check_arguments(q, rows);
  LayoutEngine* engine = layout_engine({&q});
  for (std::size_t i = 0; engine == nullptr && i < rows.size(); ++i)
    engine = layout_engine({&rows[i].k, &rows[i].v});
  if (engine == nullptr) return attend_rows(q, rows, scale);
  SdpaOptions options;
  options.scale = scale;
  std::vector<const Tensor*> inputs{&q};
  for (const KeyValue& row : rows) {
    inputs.push_back(&row.k);
    inputs.push_back(&row.v);
  }
  const auto local = [&](const LocalCall& call) {
    return std::vector<Tensor>{attend_rows_part(call, scale)};
  };
  return std::move(
      engine->run(planner::OpId::kAttentionRows, inputs, {}, OpOptions(options), local)[0]);
}

}  // namespace meshloom::ops
