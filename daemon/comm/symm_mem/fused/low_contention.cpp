// SPDX-License-Identifier: Apache-2.0
#include "daemon/comm/symm_mem/fused/low_contention.h"

#include <vector>

#include "daemon/comm/collectives/ordered_reduce.h"
#include "daemon/comm/group_checks.h"
#include "daemon/comm/symm_mem/fused/pipeline.h"
#include "kernels/base/error.h"
#include "planner/shard.h"

namespace meshloom::comm {
namespace {

void check_rows(const char* op, const Tensor& x) {
  check(x.defined() && !x.has_layout() && x.device() == kCpuDevice,
        "{}: expected this rank's own tensor in host memory", op);
  check(x.ndim() >= 1, "{}: shape {}, expected at least 1 dim", op, x.shape());
}

GatherCall call_of(const char* op, const Tensor& x, std::shared_ptr<SymmetricBuffer> symmetric) {
  GatherCall call;
  call.op = op;
  call.shard = x.view();
  call.symmetric = std::move(symmetric);
  return call;
}

}  // namespace

Tensor low_contention_all_gather(SymmetricGroup& group, const Tensor& shard,
                                 std::shared_ptr<SymmetricBuffer> symmetric) {
  constexpr const char* kOp = "low_contention_all_gather";
  check_rows(kOp, shard);
  ExecutionContext& context = shard.context();
  GatherPipeline pipeline(context, group, call_of(kOp, shard, std::move(symmetric)));
  Shape shape = shard.shape();
  shape[0] = pipeline.total();
  Tensor joined = empty(context, shape, shard.dtype());
  pipeline.run([&](const GatherPiece& piece) {
    const TensorView place =
        rows_of(joined.view(), pipeline.begin(piece.source), piece.rows.size(0));
    context.backend().copy(context.kernel_context(), place, piece.rows);
  });
  return joined;
}

Tensor low_contention_reduce_scatter(SymmetricGroup& group, const Tensor& x, ReduceOp reduce_op,
                                     std::shared_ptr<SymmetricBuffer> symmetric) {
  constexpr const char* kOp = "low_contention_reduce_scatter";
  check_rows(kOp, x);
  check_reducible(x.dtype(), reduce_op, kOp);
  ExecutionContext& context = x.context();
  GatherCall call = call_of(kOp, x, std::move(symmetric));
  call.agreed = {{"the number of rows", x.size(0)},
                 {"reduce_op", static_cast<std::int64_t>(reduce_op)}};
  GatherPipeline pipeline(context, group, std::move(call));
  const planner::ShardRange range = planner::shard_range(x.size(0), group.size(), group.rank());
  Shape shape = x.shape();
  shape[0] = range.size();
  Tensor part = empty(context, shape, x.dtype());
  std::vector<const void*> inputs(static_cast<std::size_t>(group.size()));
  std::size_t seen = 0;
  pipeline.run([&](const GatherPiece& piece) {
    inputs[static_cast<std::size_t>(piece.source)] =
        rows_of(piece.rows, range.begin, range.size()).data;
    if (++seen == inputs.size())
      reduce_in_order(context.threads(), x.dtype(), reduce_op, part.view().data, inputs,
                      part.numel());
  });
  return part;
}

}  // namespace meshloom::comm
