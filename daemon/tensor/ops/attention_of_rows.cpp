// SPDX-License-Identifier: Apache-2.0
#include "daemon/tensor/layout.h"
#include "daemon/tensor/ops/attention.h"
#include "daemon/tensor/ops/op_support.h"
#include "daemon/tensor/ops/shape.h"
#include "kernels/base/error.h"

namespace meshloom::ops {
namespace {

constexpr const char* kName = "attention_of_rows";

void check_row(const Tensor& q, const KeyValue& row, std::int64_t dims_v) {
  const auto& [k, v] = row;
  check_same_dtype(kName, q, k);
  check_same_dtype(kName, q, v);
  const bool fits = k.ndim() == 4 && v.ndim() == 4 && k.size(0) == 1 && v.size(0) == 1 &&
                    k.size(1) == v.size(1) && k.size(1) > 0 && q.size(1) % k.size(1) == 0 &&
                    k.size(2) == v.size(2) && k.size(2) > 0 && k.size(3) == q.size(3) &&
                    v.size(3) == dims_v;
  check(fits, "{}: a row's k {} and v {} do not fit q {} and values of {}", kName, k.shape(),
        v.shape(), q.shape(), dims_v);
}

void check_arguments(const Tensor& q, std::span<const KeyValue> rows) {
  check_floating(kName, q);
  check(q.ndim() == 4 && q.size(2) == 1, "{}: q {}, expected [B,H,1,D]", kName, q.shape());
  check(!rows.empty() && q.size(0) == static_cast<std::int64_t>(rows.size()),
        "{}: q {} for the keys and values of {} rows", kName, q.shape(), rows.size());
  for (const KeyValue& row : rows) check_row(q, row, rows[0].v.size(-1));
}

// Tensors of several ranks: the rows differ in length, and so in the decisions about layouts.
Tensor one_by_one(const Tensor& q, std::span<const KeyValue> rows, double scale) {
  SdpaOptions options;
  options.is_causal = options.causal_bottom_right = options.enable_gqa = true;
  options.scale = scale;
  std::vector<Tensor> results;
  for (std::size_t i = 0; i < rows.size(); ++i) {
    const auto first = static_cast<std::int64_t>(i);
    const Tensor query = slice(q, 0, first, first + 1);
    results.push_back(scaled_dot_product_attention(query, rows[i].k, rows[i].v, options).o);
  }
  return cat(results, 0);
}

bool has_dense_rows(const Tensor& x) { return x.size(3) <= 1 || x.strides()[3] == 1; }

}  // namespace

Tensor attention_of_rows(const Tensor& q, std::span<const KeyValue> rows, double scale) {
  check_arguments(q, rows);
  bool local = layout_engine({&q}) == nullptr && has_dense_rows(q);
  std::vector<kernels::AttentionMemory> memories;
  for (const auto& [k, v] : rows) {
    local = local && layout_engine({&k, &v}) == nullptr && has_dense_rows(k) && has_dense_rows(v);
    if (local) memories.push_back({k.view(), v.view()});
  }
  if (!local) return one_by_one(q, rows, scale);
  ExecutionContext& context = q.context();
  const Tensor o = empty_heads(context, {q.size(0), q.size(1), 1, rows[0].v.size(3)}, q.dtype());
  const Tensor lse = empty(context, {q.size(0), q.size(1), 1}, DType::kFloat32);
  context.backend().attention_rows(context.kernel_context(), {o.view(), lse.view(), false},
                                   q.view(), memories, scale);
  return o;
}

}  // namespace meshloom::ops
