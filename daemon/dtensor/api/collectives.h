// SPDX-License-Identifier: Apache-2.0
// Collectives on plain tensors with gradients, for code that speaks of ranks instead of layouts.
//
// All ranks of the group call them with tensors of one dtype that require a gradient on all ranks
// or on none. The group is any, or that of mesh dims (DeviceMesh::group). Gradients are those of
// the sum over all ranks of what each makes of its own result, so that backward is a collective
// too, which all ranks run. Arguments are not changed; results have memory of their own. Throws
// InvalidArgument for a tensor with a layout, before any collective.
#pragma once

#include <cstdint>
#include <vector>

#include "daemon/comm/process_group.h"
#include "daemon/tensor/tensor.h"

namespace meshloom::dtensor {

/// kAvg takes floating dtypes, kMax and kMin record no gradient and refuse a tensor that needs one.
enum class Reduction { kSum, kAvg, kMax, kMin };

/// RankSizes are sizes along a dim, one per rank of the group. Empty if nothing is said: see each
/// call.
using RankSizes = std::vector<std::int64_t>;

/// Returns x, of one shape on all ranks, reduced over the ranks. Backward: the same sum or average.
Tensor all_reduce(const Tensor& x, comm::ProcessGroup& group,
                  Reduction reduction = Reduction::kSum);

/// Returns the ranks' x one after the other along `dim`, in which their sizes may differ. `sizes`
/// empty: they are asked for with one more small all_gather. Backward: a reduce_scatter.
Tensor all_gather(const Tensor& x, std::int64_t dim, comm::ProcessGroup& group,
                  const RankSizes& sizes = {});

/// This rank's piece along `dim` of x, of one shape on all ranks, reduced over them. `sizes` empty:
/// pieces as of a sharded dim (planner/shard.h). Backward: an all_gather.
Tensor reduce_scatter(const Tensor& x, std::int64_t dim, comm::ProcessGroup& group,
                      Reduction reduction = Reduction::kSum, const RankSizes& sizes = {});

/// Shards x along `dim` into pieces of `send` elements for each rank, and joins the pieces that
/// come for this rank in rank order. `send` empty: as of a sharded dim. Sizes are exchanged with
/// one more small all_gather. Backward: the same the other way round.
Tensor all_to_all(const Tensor& x, std::int64_t dim, comm::ProcessGroup& group,
                  const RankSizes& send = {});

/// Returns the root's x on every rank; the others give a tensor of that shape and get no gradient.
/// Backward adds the ranks' gradients on the root (one all_reduce).
Tensor broadcast(const Tensor& x, int root, comm::ProcessGroup& group);

}  // namespace meshloom::dtensor
