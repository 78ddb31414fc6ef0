// SPDX-License-Identifier: Apache-2.0
#include "daemon/parallel/context_parallel/block_attention.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "daemon/parallel/context_parallel/gradient_return.h"
#include "daemon/parallel/context_parallel/key_exchange.h"
#include "daemon/tensor/execution_context.h"
#include "daemon/tensor/ops/op_support.h"
#include "kernels/base/error.h"

namespace meshloom::parallel {
namespace {

using planner::IndexRanges;
using planner::ShardRange;

/// A list of key positions as pieces of a bias's key dim, and the other way.
template <typename Copy>
void for_each_column_range(const IndexRanges& keys, const Copy& copy) {
  std::int64_t next = 0;
  for (const ShardRange& range : keys) {
    copy(range, ShardRange{next, next + range.size()});
    next += range.size();
  }
}

Tensor columns(const Tensor& x, ShardRange range) {
  Shape shape = x.shape();
  const int last = shape.size() - 1;
  shape[last] = range.size();
  return ops::alias(x, shape, x.strides(), range.begin * x.strides()[last]);
}

/// The bias of one block: the rows of a group and the keys of a block of bias
/// [B or 1, H or 1, n or 1, Skv or 1], which may lack leading dims.
class BlockBias {
 public:
  BlockBias(const Tensor& bias, const RowGroup& group, const IndexRanges& keys) : keys_(keys) {
    if (!bias) return;
    rows_ = rows_of_group(bias, group);
    // One column stands for all keys, also where there is one key.
    per_key_ = rows_.size(rows_.ndim() - 1) != 1;
    if (!per_key_) {
      values_ = rows_;
      return;
    }
    Shape shape = rows_.shape();
    shape[shape.size() - 1] = total_size(keys);
    values_ = empty(bias.context(), shape, DType::kFloat32);
    for_each_column_range(keys_, [&](ShardRange from, ShardRange to) {
      copy_into(columns(values_, to), columns(rows_, from));
    });
  }

  TensorView view(const Shape& scores) const {
    return values_ ? ops::broadcast_view(values_, scores) : TensorView{};
  }
  /// Zeros of the shape of the block's bias, to add its gradient to.
  Tensor make_gradient() const {
    return zeros(values_.context(), values_.shape(), DType::kFloat32);
  }
  /// Adds the block's gradient to that of the whole bias.
  void add_gradient(const Tensor& whole, const RowGroup& group, const Tensor& of_block) const {
    const Tensor rows = rows_of_group(whole, group);
    if (!per_key_) return add_into(rows, of_block);
    for_each_column_range(keys_, [&](ShardRange from, ShardRange to) {
      add_into(columns(rows, from), columns(of_block, to));
    });
  }

 private:
  static Tensor rows_of_group(const Tensor& x, const RowGroup& group) {
    return x.ndim() == 4 ? rows_of(x, group) : x;
  }

  const IndexRanges& keys_;
  Tensor rows_, values_;
  bool per_key_ = false;
};

/// One block of one group as the kernel sees it, with the tensors that the options view.
class Block {
 public:
  /// `block`: the keys of the steps [first, end), one behind the other.
  Block(const BlockCall& call, std::size_t group, int first, int end, KeyBlock block)
      : group_(call.plan->groups[group]),
        block_(std::move(block)),
        q_(rows_of(call.q, group_)),
        bias_(call.part.bias, group_, block_.keys),
        options_(call.part.options) {
    call.plan->positions.tell(options_, group, first, end);
    check_internal(options_.query_positions.shape[0] == q_.size(2) &&
                       options_.key_positions.shape[0] == block_.k.size(2),
                   "a block of {} queries and {} keys has {} and {} positions", q_.size(2),
                   block_.k.size(2), options_.query_positions.shape[0],
                   options_.key_positions.shape[0]);
    options_.bias = bias_.view(scores());
    options_.dropout_first_head += group_.first * options_.dropout_total_heads;
  }

  Shape scores() const { return {q_.size(0), q_.size(1), q_.size(2), block_.k.size(2)}; }
  const RowGroup& group() const { return group_; }
  const BlockBias& bias() const { return bias_; }
  const kernels::AttentionOptions& options() const { return options_; }
  kernels::AttentionInputs inputs() const { return {q_.view(), block_.k.view(), block_.v.view()}; }

 private:
  const RowGroup& group_;
  KeyBlock block_;
  Tensor q_;
  BlockBias bias_;
  kernels::AttentionOptions options_;
};

/// Whether a step has anything for a group to compute.
bool has_work(const BlockCall& call, const RowGroup& group, int step) {
  return !group.steps[static_cast<std::size_t>(step)].keys.empty() && call.q.size(1) > 0 &&
         call.q.size(2) > 0;
}

/// Sequences of so few keys, a tile of the kernel, are attended to at once: merging blocks of some
/// keys each would round more often than one rank does.
constexpr std::int64_t kKeysAtOnce = 96;

bool at_once(const SequencePlan& plan) {
  return std::all_of(plan.groups.begin(), plan.groups.end(), [](const RowGroup& group) {
    std::int64_t keys = 0;
    for (const planner::SequencePart& part : group.parts) keys += total_size(part.keys);
    return keys <= kKeysAtOnce;
  });
}

int step_count(const SequencePlan& plan) { return static_cast<int>(plan.members.size()); }

/// The rows of a group of o [B,H,n,Dv] and lse [B,H,n].
kernels::AttentionOutputs outputs_of(const Tensor& o, const Tensor& lse, const RowGroup& group,
                                     bool carry) {
  return {rows_of(o, group).view(), rows_of(lse, group).view(), carry};
}

}  // namespace

ops::SdpaResult attend_blocks(const BlockCall& call) {
  const SequencePlan& plan = *call.plan;
  ExecutionContext& context = call.q.context();
  const Shape shape{call.q.size(0), call.q.size(1), call.q.size(2), call.v.size(3)};
  const bool rounded = call.q.dtype() != DType::kFloat32;
  // What is rounded in the end is summed with its rows side by side.
  const Tensor sum = rounded ? empty(context, shape, DType::kFloat32)
                             : ops::empty_heads(context, shape, DType::kFloat32);
  const Tensor lse = empty(context, {shape[0], shape[1], shape[2]}, DType::kFloat32);
  const auto exchange = exchange_keys(call.rotate, plan, *call.collectives, call.k, call.v);
  std::vector<bool> begun(plan.groups.size(), false);
  const int steps = step_count(plan), together = at_once(plan) ? steps : 1;
  std::vector<std::vector<KeyBlock>> waiting(plan.groups.size());
  for (int step = 0; step < steps; ++step) {
    const std::vector<KeyBlock> blocks = exchange->take(step);
    for (std::size_t g = 0; g < blocks.size(); ++g) {
      if (has_work(call, plan.groups[g], step)) waiting[g].push_back(blocks[g]);
      if ((step + 1) % together != 0 || waiting[g].empty()) continue;
      const Block block(call, g, step + 1 - together, step + 1,
                        join_keys(std::exchange(waiting[g], {})));
      context.backend().attention(context.kernel_context(),
                                  outputs_of(sum, lse, block.group(), begun[g]), block.inputs(),
                                  block.options());
      begun[g] = true;
    }
  }
  exchange->release();
  for (std::size_t g = 0; g < begun.size(); ++g) {
    if (begun[g] || shape[1] == 0 || shape[2] == 0) continue;
    const auto nothing = outputs_of(sum, lse, plan.groups[g], false);
    context.backend().fill(context.kernel_context(), nothing.o, 0.0);
    context.backend().fill(context.kernel_context(), nothing.lse,
                           -std::numeric_limits<double>::infinity());
  }
  const Tensor o = rounded ? ops::empty_heads(context, shape, call.q.dtype()) : sum;
  if (rounded) copy_into(o, sum);
  exchange->close();
  return {o, lse};
}

BlockGrads attend_blocks_backward(const BlockCall& call, const ops::SdpaResult& result,
                                  const Tensor& grad_o, bool wants_bias) {
  const SequencePlan& plan = *call.plan;
  ExecutionContext& context = call.q.context();
  const auto& kernel_context = context.kernel_context();
  const auto exchange = exchange_keys(call.rotate, plan, *call.collectives, call.k, call.v);
  const auto gradients = return_gradients(call.rotate, plan, *call.collectives, call.k, call.v);
  const Tensor delta = empty(context, result.lse.shape(), DType::kFloat32);
  context.backend().attention_delta(kernel_context, delta.view(), grad_o.view(), result.o.view());
  BlockGrads all;
  all.dq = call.q.dtype() == DType::kFloat32
               ? ops::empty_heads(context, call.q.shape(), DType::kFloat32)
               : empty(context, call.q.shape(), DType::kFloat32);
  context.backend().fill(kernel_context, all.dq.view(), 0.0);
  if (wants_bias) all.dbias = zeros(context, call.part.bias.shape(), DType::kFloat32);
  for (int step = 0; step < step_count(plan); ++step) {
    const std::vector<KeyBlock> blocks = exchange->take(step);
    const std::vector<KeyBlock> sums = gradients->open(step);
    for (std::size_t g = 0; g < blocks.size(); ++g) {
      if (!has_work(call, plan.groups[g], step)) continue;
      const Block block(call, g, step, step + 1, blocks[g]);
      const RowGroup& group = block.group();
      kernels::AttentionGrads grads{rows_of(grad_o, group).view(),
                                    rows_of(result.lse, group).view(),
                                    rows_of(delta, group).view(),
                                    rows_of(all.dq, group).view(),
                                    sums[g].k.view(),
                                    sums[g].v.view(),
                                    true,
                                    {},
                                    rows_of(result.o, group).view()};
      Tensor dbias;
      if (wants_bias) {
        dbias = block.bias().make_gradient();
        grads.grad_bias = ops::broadcast_view(dbias, block.scores());
      }
      context.backend().attention_backward(kernel_context, grads, block.inputs(), block.options());
      if (wants_bias) block.bias().add_gradient(all.dbias, group, dbias);
    }
    gradients->close();
  }
  exchange->release();
  KeyGrads keys = gradients->finish();
  all.dk = std::move(keys.dk);
  all.dv = std::move(keys.dv);
  exchange->close();
  return all;
}

}  // namespace meshloom::parallel
