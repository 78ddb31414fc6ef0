// SPDX-License-Identifier: Apache-2.0
#include "daemon/dtensor/api/collectives.h"

#include <algorithm>
#include <numeric>

#include "daemon/tensor/autograd/function_node.h"
#include "daemon/tensor/ops/elementwise.h"
#include "daemon/tensor/ops/op_support.h"
#include "daemon/tensor/ops/shape.h"
#include "kernels/base/error.h"
#include "planner/shard.h"

namespace meshloom::dtensor {
namespace {

using autograd::GradOutputs;
using autograd::GradSink;

void check_plain(const char* call, const Tensor& x) {
  check(x.defined() && !x.has_layout(), "{}: expected a plain tensor", call);
}

int dim_of(const char* call, const Tensor& x, std::int64_t dim) {
  const std::int64_t at = dim < 0 ? dim + x.ndim() : dim;
  check(at >= 0 && at < x.ndim(), "{}: dim {} of a tensor of shape {}", call, dim, x.shape());
  return static_cast<int>(at);
}

/// One per rank, of which the pieces of `whole` are made; as of a sharded dim if none are given.
RankSizes piece_sizes(const char* call, const RankSizes& given, std::int64_t whole, int ranks) {
  if (given.empty()) {
    RankSizes sizes;
    for (int r = 0; r < ranks; ++r) sizes.push_back(planner::shard_range(whole, ranks, r).size());
    return sizes;
  }
  check(static_cast<int>(given.size()) == ranks, "{}: {} sizes for {} ranks", call, given.size(),
        ranks);
  check(std::all_of(given.begin(), given.end(), [](std::int64_t size) { return size >= 0; }) &&
            std::accumulate(given.begin(), given.end(), std::int64_t{0}) == whole,
        "{}: sizes [{}] of a dim of {}", call, fmt::join(given, ", "), whole);
  return given;
}

/// May this reduction be done, and with a gradient?
void check_reduction(const char* call, const Tensor& x, Reduction reduction) {
  check(reduction != Reduction::kAvg || dtype_is_floating(x.dtype()),
        "{}: an average of {} values; expected a floating dtype", call, dtype_name(x.dtype()));
  const bool linear = reduction == Reduction::kSum || reduction == Reduction::kAvg;
  check(linear || !x.requires_grad() || !x.context().grad_enabled(),
        "{}: a maximum or minimum has no gradient, and the tensor requires one", call);
}

comm::ReduceOp op_of(Reduction reduction) {
  if (reduction == Reduction::kMax) return comm::ReduceOp::kMax;
  return reduction == Reduction::kMin ? comm::ReduceOp::kMin : comm::ReduceOp::kSum;
}

Tensor averaged(const Tensor& sum, Reduction reduction, const comm::ProcessGroup& group) {
  return reduction == Reduction::kAvg ? ops::mul(sum, 1.0 / group.size()) : sum;
}

Tensor dense_copy(const Tensor& x) {
  Tensor copy = empty(x.context(), x.shape(), x.dtype());
  copy_into(copy, x.detach());
  return copy;
}

/// Dense pieces one after the other.
std::vector<Tensor> pieces_of(const Tensor& x, int dim, const RankSizes& sizes) {
  std::vector<Tensor> pieces;
  std::int64_t at = 0;
  for (const std::int64_t size : sizes) {
    pieces.push_back(ops::contiguous(ops::slice(x, dim, at, at + size)));
    at += size;
  }
  return pieces;
}

std::vector<Tensor> empty_pieces(const Tensor& like, int dim, const RankSizes& sizes) {
  std::vector<Tensor> pieces;
  Shape shape = like.shape();
  for (const std::int64_t size : sizes) {
    shape[dim] = size;
    pieces.push_back(empty(like.context(), shape, like.dtype()));
  }
  return pieces;
}

std::vector<TensorView> views_of(const std::vector<Tensor>& tensors) {
  std::vector<TensorView> views;
  for (const Tensor& t : tensors) views.push_back(t.view());
  return views;
}

// --- Without a gradient (recording is off)

Tensor reduced(const Tensor& x, comm::ProcessGroup& group, Reduction reduction) {
  const Tensor y = dense_copy(x);
  group.all_reduce(y.view(), op_of(reduction))->wait_host();
  return averaged(y, reduction, group);
}

Tensor gathered(const Tensor& x, int dim, comm::ProcessGroup& group, const RankSizes& sizes) {
  const Tensor mine = ops::contiguous(x.detach());
  const std::vector<Tensor> parts = empty_pieces(mine, dim, sizes);
  group.all_gather(views_of(parts), mine.view())->wait_host();
  return ops::cat(parts, dim);
}

Tensor scattered(const Tensor& x, int dim, comm::ProcessGroup& group, Reduction reduction,
                 const RankSizes& sizes) {
  const std::vector<Tensor> parts = pieces_of(x.detach(), dim, sizes);
  const Tensor& mine = parts[static_cast<std::size_t>(group.rank())];
  const Tensor y = empty(x.context(), mine.shape(), x.dtype());
  group.reduce_scatter(y.view(), views_of(parts), op_of(reduction))->wait_host();
  return averaged(y, reduction, group);
}

Tensor exchanged(const Tensor& x, int dim, comm::ProcessGroup& group, const RankSizes& send,
                 const RankSizes& receive) {
  const std::vector<Tensor> sent = pieces_of(x.detach(), dim, send);
  const std::vector<Tensor> received = empty_pieces(x, dim, receive);
  group.all_to_all(views_of(received), views_of(sent))->wait_host();
  return ops::cat(received, dim);
}

/// Every rank's numbers, one after the other. They are the host's, wherever tensors lie.
RankSizes all_sizes(const RankSizes& mine, comm::ProcessGroup& group) {
  RankSizes all;
  for (int rank = 0; rank < group.size(); ++rank) all.insert(all.end(), mine.begin(), mine.end());
  const auto count = static_cast<std::int64_t>(mine.size());
  std::vector<TensorView> views;
  for (int rank = 0; rank < group.size(); ++rank)
    views.push_back(make_view(all.data() + rank * count, DType::kInt64, {count}));
  group.all_gather(views, views[static_cast<std::size_t>(group.rank())])->wait_host();
  return all;
}

/// `y`, whose gradient goes to x by `backward(dy)`.
template <typename Backward>
Tensor with_gradient(const char* name, const Tensor& x, Tensor y, Backward backward) {
  if (autograd::should_record({&x}))
    autograd::record_op(name, {&x}, {&y}, [backward](GradOutputs grads, GradSink& sink) {
      sink.emit(0, backward(grads[0]));
    });
  return y;
}

}  // namespace

Tensor all_reduce(const Tensor& x, comm::ProcessGroup& group, Reduction reduction) {
  check_plain("all_reduce", x);
  check_reduction("all_reduce", x, reduction);
  Tensor y;
  {
    const NoGradGuard no_grad(x.context());
    y = reduced(x, group, reduction);
  }
  return with_gradient("all_reduce", x, std::move(y), [&group, reduction](const Tensor& dy) {
    return reduced(dy, group, reduction);
  });
}

Tensor all_gather(const Tensor& x, std::int64_t dim_given, comm::ProcessGroup& group,
                  const RankSizes& given) {
  check_plain("all_gather", x);
  const int dim = dim_of("all_gather", x, dim_given);
  const auto rank = static_cast<std::size_t>(group.rank());
  check(given.empty() ||
            (static_cast<int>(given.size()) == group.size() && given[rank] == x.shape()[dim]),
        "all_gather: sizes [{}] for {} ranks, of which rank {} has {}", fmt::join(given, ", "),
        group.size(), group.rank(), x.shape()[dim]);
  Tensor y;
  RankSizes sizes = given;
  {
    const NoGradGuard no_grad(x.context());
    if (sizes.empty()) sizes = all_sizes({x.shape()[dim]}, group);
    y = gathered(x, dim, group, sizes);
  }
  return with_gradient("all_gather", x, std::move(y), [&group, dim, sizes](const Tensor& dy) {
    return scattered(dy, dim, group, Reduction::kSum, sizes);
  });
}

Tensor reduce_scatter(const Tensor& x, std::int64_t dim_given, comm::ProcessGroup& group,
                      Reduction reduction, const RankSizes& given) {
  check_plain("reduce_scatter", x);
  check_reduction("reduce_scatter", x, reduction);
  const int dim = dim_of("reduce_scatter", x, dim_given);
  const RankSizes sizes = piece_sizes("reduce_scatter", given, x.shape()[dim], group.size());
  Tensor y;
  {
    const NoGradGuard no_grad(x.context());
    y = scattered(x, dim, group, reduction, sizes);
  }
  return with_gradient("reduce_scatter", x, std::move(y),
                       [&group, dim, sizes, reduction](const Tensor& dy) {
                         return averaged(gathered(dy, dim, group, sizes), reduction, group);
                       });
}

Tensor all_to_all(const Tensor& x, std::int64_t dim_given, comm::ProcessGroup& group,
                  const RankSizes& given) {
  check_plain("all_to_all", x);
  const int dim = dim_of("all_to_all", x, dim_given);
  const RankSizes send = piece_sizes("all_to_all", given, x.shape()[dim], group.size());
  RankSizes receive;
  Tensor y;
  {
    const NoGradGuard no_grad(x.context());
    const RankSizes all = all_sizes(send, group);
    for (int r = 0; r < group.size(); ++r)
      receive.push_back(all[static_cast<std::size_t>(r * group.size() + group.rank())]);
    y = exchanged(x, dim, group, send, receive);
  }
  return with_gradient("all_to_all", x, std::move(y),
                       [&group, dim, send, receive](const Tensor& dy) {
                         return exchanged(dy, dim, group, receive, send);
                       });
}

Tensor broadcast(const Tensor& x, int root, comm::ProcessGroup& group) {
  check_plain("broadcast", x);
  check(root >= 0 && root < group.size(), "broadcast: root {} of a group of {} ranks", root,
        group.size());
  Tensor y;
  {
    const NoGradGuard no_grad(x.context());
    y = dense_copy(x);
    group.broadcast(y.view(), root)->wait_host();
  }
  return with_gradient("broadcast", x, std::move(y), [&group, root](const Tensor& dy) {
    const Tensor sum = reduced(dy, group, Reduction::kSum);
    return group.rank() == root ? sum : zeros(dy.context(), dy.shape(), dy.dtype());
  });
}

}  // namespace meshloom::dtensor
