// SPDX-License-Identifier: Apache-2.0
#include "tests/conformance/group_case.h"

#include <algorithm>
#include <array>

#include "daemon/comm/symm_mem/fused/low_contention.h"
#include "daemon/comm/symm_mem/host_symmetric_memory.h"
#include "daemon/tensor/ops/shape.h"
#include "kernels/base/error.h"
#include "planner/shard.h"
#include "tests/conformance/group_attributes.h"
#include "tests/conformance/spec_tensors.h"

namespace meshloom::conformance {
namespace {

constexpr std::array<std::string_view, 10> kGroupOps{"all_reduce",
                                                     "all_gather",
                                                     "reduce_scatter",
                                                     "all_to_all",
                                                     "low_contention_all_gather",
                                                     "low_contention_reduce_scatter",
                                                     "broadcast",
                                                     "scatter",
                                                     "gather",
                                                     "send_recv"};

void clear(const Tensor& x) {
  x.context().backend().fill(x.context().kernel_context(), x.view(), 0.0);
}

/// One call on one rank.
class GroupCall {
 public:
  GroupCall(const std::string& op, const Case& c, const TensorFile& file, RankContext& rank)
      : op_(op),
        attributes_(read_group_attributes(op, c, file)),
        context_(rank.context),
        world_(rank.world),
        size_(rank.world.size()),
        rank_(rank.rank()),
        rows_(row_counts(op, attributes_, file.shape("in.x"), size_)) {
    const Tensor all = file.load(context_, "in.x");
    row_shape_ = all.shape();
    row_shape_.erase(0);
    x_ = empty(context_, row_shape_, all.dtype());
    copy_into(x_, ops::squeeze(ops::slice(all, 0, rank_, rank_ + 1), 0));
  }

  /// y[rank], its rows alone: as many as this rank gets.
  Tensor run() {
    if (op_ == "all_reduce" || op_ == "broadcast") return run_whole();
    if (op_ == "all_gather" || op_ == "gather") return run_gather();
    if (op_ == "reduce_scatter") return run_reduce_scatter();
    if (op_ == "scatter") return run_scatter();
    if (op_ == "all_to_all") return run_all_to_all();
    if (op_ == "send_recv") return run_send_recv();
    return run_low_contention();
  }

  /// The rows of every rank, and the most of them, in a y of one shape.
  std::int64_t rows_of_result(int rank) const { return rows_.results[index(rank)]; }
  std::int64_t most_rows() const {
    return *std::max_element(rows_.results.begin(), rows_.results.end());
  }
  bool has_rows() const { return !row_shape_.empty(); }

 private:
  static std::size_t index(int rank) { return static_cast<std::size_t>(rank); }

  Shape with_rows(std::int64_t rows) const {
    Shape shape = row_shape_;
    if (!shape.empty()) shape[0] = rows;
    return shape;
  }

  /// Consecutive parts of a tensor's first dim.
  std::vector<TensorView> parts(const Tensor& x, const std::vector<std::int64_t>& counts) const {
    std::vector<TensorView> views;
    std::int64_t begin = 0;
    for (const std::int64_t count : counts) {
      views.push_back(meshloom::rows_of(x.view(), begin, count));
      begin += count;
    }
    return views;
  }

  Tensor copy_of(const Tensor& x) const {
    const Tensor copy = empty(context_, x.shape(), x.dtype());
    copy_into(copy, x);
    return copy;
  }
  /// Where the result goes: x itself, or memory of its own.
  Tensor target() const { return attributes_.in_place ? x_ : copy_of(x_); }

  Tensor run_whole() {
    const Tensor y = target();
    if (op_ == "broadcast")
      world_.broadcast(y.view(), attributes_.root)->wait_host();
    else
      world_.all_reduce(y.view(), attributes_.reduce_op, attributes_.algorithm)->wait_host();
    return y;
  }

  Tensor run_gather() {
    std::int64_t total = 0;
    for (const std::int64_t count : rows_.brings) total += count;
    const Tensor y = empty(context_, with_rows(total), x_.dtype());
    const std::vector<TensorView> outputs = parts(y, rows_.brings);
    TensorView input = meshloom::rows_of(x_.view(), 0, rows_.brings[index(rank_)]);
    if (op_ == "gather") {
      world_.gather(outputs, input, attributes_.root)->wait_host();
      return rank_ == attributes_.root ? y : empty(context_, with_rows(0), x_.dtype());
    }
    if (attributes_.in_place) {
      const TensorView own = outputs[index(rank_)];
      context_.backend().copy(context_.kernel_context(), own, input);
      input = own;
    }
    world_.all_gather(outputs, input)->wait_host();
    return y;
  }

  Tensor run_reduce_scatter() {
    const std::vector<TensorView> inputs = parts(x_, rows_.parts);
    const Tensor y = empty(context_, with_rows(rows_.parts[index(rank_)]), x_.dtype());
    const TensorView own = inputs[index(rank_)];
    world_.reduce_scatter(attributes_.in_place ? own : y.view(), inputs, attributes_.reduce_op)
        ->wait_host();
    if (attributes_.in_place) context_.backend().copy(context_.kernel_context(), y.view(), own);
    return y;
  }

  Tensor run_scatter() {
    const Tensor y = empty(context_, with_rows(rows_.parts[index(rank_)]), x_.dtype());
    std::vector<TensorView> inputs;
    if (rank_ == attributes_.root) inputs = parts(x_, rows_.parts);
    world_.scatter(y.view(), inputs, attributes_.root)->wait_host();
    return y;
  }

  Tensor run_all_to_all() {
    std::vector<std::int64_t> received;
    for (int r = 0; r < size_; ++r) received.push_back(rows_.sends[index(r)][index(rank_)]);
    // Into x's own memory it goes from a copy: a group reads inputs while outputs arrive.
    const Tensor from = attributes_.in_place ? copy_of(x_) : x_;
    const Tensor y =
        attributes_.in_place ? x_ : empty(context_, with_rows(rows_of_result(rank_)), x_.dtype());
    world_.all_to_all(parts(y, received), parts(from, rows_.sends[index(rank_)]))->wait_host();
    return y;
  }

  Tensor run_send_recv() {
    TensorView nothing = make_view(nullptr, x_.dtype(), Shape{0});
    std::vector<TensorView> inputs(index(size_), nothing), outputs = inputs;
    const Tensor y = empty(context_, x_.shape(), x_.dtype());
    clear(y);
    for (const auto& [from, to] : attributes_.pairs) {
      if (from == rank_) inputs[index(to)] = x_.view();
      if (to == rank_) outputs[index(from)] = y.view();
    }
    world_.send_recv(outputs, inputs)->wait_host();
    return y;
  }

  Tensor run_low_contention() {
    comm::HostSymmetricMemory memory;
    comm::SymmetricGroup& group = memory.enable(world_);
    const Tensor y = op_ == "low_contention_all_gather"
                         ? comm::low_contention_all_gather(group, x_)
                         : comm::low_contention_reduce_scatter(group, x_, attributes_.reduce_op);
    world_.barrier()->wait_host();
    return y;
  }

  std::string op_;
  GroupAttributes attributes_;
  ExecutionContext& context_;
  comm::ProcessGroup& world_;
  int size_, rank_;
  RowCounts rows_;
  Shape row_shape_;  ///< of x[r]
  Tensor x_;
};

/// All y[r] under one another, each filled up with zeros.
Tensor join_results(const GroupCall& call, const Tensor& mine, const RankContext& rank) {
  Shape shape = mine.shape();
  if (call.has_rows()) shape[0] = call.most_rows();
  Shape all_shape = shape;
  all_shape.insert(0, rank.world.size());
  const Tensor all = empty(rank.context, all_shape, mine.dtype());
  std::vector<TensorView> views;
  for (int r = 0; r < rank.world.size(); ++r) {
    TensorView view = rows_of(all.view(), r, 1);
    view.shape.erase(0);
    view.strides.erase(0);
    views.push_back(view);
  }
  const Tensor own = empty(rank.context, shape, mine.dtype());
  clear(own);
  if (mine.numel() > 0)
    copy_into(call.has_rows() ? ops::slice(own, 0, 0, mine.shape()[0]) : own, mine);
  rank.world.all_gather(views, own.view())->wait_host();
  return all;
}

}  // namespace

bool is_group_op(const std::string& op) {
  return std::find(kGroupOps.begin(), kGroupOps.end(), op) != kGroupOps.end();
}

void validate_group(const std::string& op, const Case& c, const TensorFile& file) {
  const GroupAttributes attributes = read_group_attributes(op, c, file);
  row_counts(op, attributes, file.shape("in.x"), static_cast<int>(c.mesh.size()));
}

void run_group(const std::string& op, const Case& c, const TensorFile& file, RankContext& rank,
               CaseResults& results) {
  GroupCall call(op, c, file, rank);
  rank.world.reset_counters();
  const Tensor mine = call.run();
  store_counters(rank.world.counters(), "forward", results);
  results.local_shapes["y"] = mine.shape();
  results.tensors["out.y"] = join_results(call, mine, rank);
}

}  // namespace meshloom::conformance
