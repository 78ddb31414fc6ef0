// SPDX-License-Identifier: Apache-2.0
#include "daemon/parallel/context_parallel/context_attention.h"

#include "daemon/parallel/context_parallel/block_attention.h"
#include "daemon/parallel/context_parallel/head_exchange.h"
#include "daemon/parallel/context_parallel/kept_keys.h"
#include "daemon/tensor/autograd/checkpoint.h"
#include "daemon/tensor/execution_context.h"
#include "daemon/tensor/ops/op_support.h"
#include "daemon/tensor/ops/shape.h"
#include "kernels/base/error.h"

namespace meshloom::parallel {
namespace {

using autograd::GradOutputs;
using autograd::GradSink;
using planner::MeshRole;
using planner::Rotate;

/// One call of attention on this rank: heads go to neighbours first if they are exchanged.
class SequenceAttention {
 public:
  SequenceAttention(const LocalCall& call, const ops::SdpaOptions& options, Rotate rotate,
                    std::shared_ptr<const SequencePlan> plan, const Tensor& q, const Tensor& k,
                    const Tensor& v, const Tensor& bias)
      : plan_(std::move(plan)),
        heads_(*plan_, call.collectives),
        query_heads_(planner::query_heads_of(q.size(1), plan_->neighbours)),
        key_heads_(
            planner::key_heads_of(query_heads_, q.size(1) / std::max<std::int64_t>(1, k.size(1)))),
        query_count_(q.size(1)),
        key_count_(k.size(1)),
        blocks_(make_blocks(call, options, rotate, q, k, v, bias)) {}

  /// What stays for backward: the result of this rank's heads, out of the checkpoint if one is
  /// replayed.
  ops::SdpaResult attend(ExecutionContext& context) const {
    autograd::CheckpointFrame* frame = context.checkpoint_frame();
    if (frame)
      if (auto kept = frame->replay_attention()) return {kept->o, kept->lse};
    ops::SdpaResult result = attend_blocks(blocks_);
    if (frame) frame->keep_attention(result.o, result.lse);
    return result;
  }
  /// The result as the op gives it.
  ops::SdpaResult at_places(const ops::SdpaResult& of_heads) const {
    if (plan_->neighbours == 1) return of_heads;
    // lse [B,H,n] goes as [B,H,n,1].
    const Tensor& lse = of_heads.lse;
    Strides strides = lse.strides();
    strides.push_back(1);
    const Tensor wide = ops::alias(lse, {lse.size(0), lse.size(1), lse.size(2), 1}, strides);
    const Tensor o = heads_.to_places(of_heads.o, query_heads_, plan_->queries, query_count_);
    const Tensor lse_at_places = heads_.to_places(wide, query_heads_, plan_->queries, query_count_);
    return {o, ops::alias(lse_at_places,
                          {lse_at_places.size(0), lse_at_places.size(1), lse_at_places.size(2)},
                          {lse_at_places.strides()[0], lse_at_places.strides()[1],
                           lse_at_places.strides()[2]})};
  }

  BlockGrads backward(const ops::SdpaResult& of_heads, const Tensor& grad_o,
                      bool wants_bias) const {
    const bool exchanged = plan_->neighbours > 1;
    const Tensor grad = exchanged ? heads_.to_heads(grad_o, query_heads_, plan_->queries) : grad_o;
    BlockGrads grads = attend_blocks_backward(blocks_, of_heads, grad, wants_bias);
    if (!exchanged) return grads;
    grads.dq = heads_.to_places(grads.dq, query_heads_, plan_->queries, query_count_);
    grads.dk = heads_.to_places(grads.dk, key_heads_, plan_->keys, key_count_);
    grads.dv = heads_.to_places(grads.dv, key_heads_, plan_->keys, key_count_);
    if (wants_bias) grads.dbias = bias_to_places(grads.dbias);
    return grads;
  }

 private:
  BlockCall make_blocks(const LocalCall& call, const ops::SdpaOptions& options, Rotate rotate,
                        const Tensor& q, const Tensor& k, const Tensor& v, const Tensor& bias) {
    ops::SdpaOptions here = options;
    here.document_ids = {};
    here.bias = bias;
    Dims place = call.attributes.dims;
    if (plan_->neighbours == 1) {
      // The ring passes on copies in any case.
      const auto shown = [&](const Tensor& x) {
        const bool alone = plan_->members.size() == 1 || rotate == Rotate::kAllToAll;
        return alone ? x : call.collectives.exposable(x, plan_->mesh_dims);
      };
      return {plan_,
              rotate,
              &call.collectives,
              q,
              shown(k),
              shown(v),
              ops::AttentionPart(q, here, place)};
    }
    if (bias) here.bias = bias_to_heads(ops::converted(bias, DType::kFloat32));
    const auto& own = query_heads_[static_cast<std::size_t>(plan_->rank % plan_->neighbours)];
    if (!own.empty()) place[planner::kFirstHead] += own.front();
    const Tensor of_heads = heads_.to_heads(q, query_heads_, plan_->queries);
    const OutputMemory memory(
        q.context(), plan_->members.size() > 1 ? MemoryKind::kSymmetric : MemoryKind::kDevice);
    return {plan_,
            rotate,
            &call.collectives,
            of_heads,
            heads_.to_heads(k, key_heads_, plan_->keys),
            heads_.to_heads(v, key_heads_, plan_->keys),
            ops::AttentionPart(of_heads, here, place)};
  }

  /// Of a bias with one head for all, each neighbour gets that one.
  HeadLists bias_heads() const {
    return bias_shape_[1] == 1 ? HeadLists(query_heads_.size(), {0}) : query_heads_;
  }
  std::pair<std::int64_t, std::int64_t> own_bias_heads() const {
    const HeadLists lists = bias_heads();
    const auto& own = lists[static_cast<std::size_t>(plan_->rank % plan_->neighbours)];
    const std::int64_t first = own.empty() ? 0 : own.front();
    return {first, first + static_cast<std::int64_t>(own.size())};
  }

  Tensor bias_to_heads(const Tensor& bias) {
    bias_original_ = bias_shape_ = bias.shape();
    while (bias_shape_.size() < 4) bias_shape_.insert(0, 1);
    const Tensor four = ops::reshape(bias, bias_shape_);
    if (plan_->bias_by_query) return heads_.to_heads(four, bias_heads(), plan_->queries);
    // One row for all queries lies whole on every rank: heads are chosen, nothing is sent.
    const auto [first, end] = own_bias_heads();
    return ops::contiguous(ops::slice(four, 1, first, end));
  }

  Tensor bias_to_places(const Tensor& dbias) const {
    if (plan_->bias_by_query)
      return ops::reshape(heads_.to_places(dbias, bias_heads(), plan_->queries, bias_shape_[1]),
                          bias_original_);
    const Tensor all = zeros(dbias.context(), bias_shape_, DType::kFloat32);
    const auto [first, end] = own_bias_heads();
    copy_into(ops::slice(all, 1, first, end), dbias);
    return ops::reshape(all, bias_original_);
  }

  std::shared_ptr<const SequencePlan> plan_;
  HeadExchange heads_;
  HeadLists query_heads_, key_heads_;
  std::int64_t query_count_, key_count_;
  Shape bias_original_, bias_shape_;
  BlockCall blocks_;
};

/// How keys travel between those that exchange them.
Rotate rotate_of(const planner::ContextParallelPlan& options) {
  const bool all = options.rotate == Rotate::kAllGather || options.rotate == Rotate::kAllToAll;
  return all ? options.rotate : Rotate::kPull;
}

int neighbours_of(const planner::ContextParallelPlan& options, int ranks) {
  if (options.rotate != Rotate::kUlysses) return 1;
  const int degree = options.ulysses_degree == 0 ? ranks : options.ulysses_degree;
  check(degree >= 1 && ranks % degree == 0,
        "context_parallel: ulysses_degree {} does not divide the {} ranks of the sequence", degree,
        ranks);
  return degree;
}

void check_lengths(const LocalCall& call, const planner::ContextParallelPlan& options) {
  const Dims& place = call.attributes.dims;
  check(options.load_balancer != planner::LoadBalancer::kHeadTail ||
            !call.options.as<ops::SdpaOptions>().is_causal ||
            place[planner::kQueries] == place[planner::kKeys],
        "context_parallel: load_balancer head_tail with is_causal takes sequences of one length, "
        "got {} queries and {} keys",
        place[planner::kQueries], place[planner::kKeys]);
}

std::vector<Tensor> attend_along_sequence(const LocalCall& call,
                                          const planner::ContextParallelPlan& options,
                                          SequencePlanCache& plans) {
  const auto& given = call.options.as<ops::SdpaOptions>();
  const Tensor& q = call.inputs[0];
  const Tensor k = ops::heads_read(call.inputs[1], q.size(1), call.attributes.dims);
  const Tensor v = ops::heads_read(call.inputs[2], q.size(1), call.attributes.dims);
  const Tensor& bias = call.inputs[kBias];
  const int ranks = call.collectives.size(call.decision.mesh_dims(MeshRole::kSequence));
  const auto plan = plans.plan(call, given, neighbours_of(options, ranks));
  const bool record = autograd::should_record({&q, &k, &v, &bias});
  const auto attention = std::make_shared<const SequenceAttention>(
      call, given, plans.rotate(), plan, ops::dense_rows(q), ops::dense_rows(k), ops::dense_rows(v),
      bias ? bias.detach() : Tensor());
  const ops::SdpaResult kept = attention->attend(q.context());
  ops::SdpaResult result = attention->at_places(kept);
  if (record) {
    Tensor o = ops::alias(result.o, result.o.shape(), result.o.strides());
    autograd::record_op(
        "context_parallel_attention", {&q, &k, &v, &bias}, {&o},
        [attention, kept, dtype = q.dtype(), bias_dtype = bias ? bias.dtype() : DType::kFloat32](
            GradOutputs dy, GradSink& sink) {
          BlockGrads grads = attention->backward(kept, ops::dense_rows(dy[0]), sink.wants(kBias));
          sink.emit(0, ops::converted(grads.dq, dtype));
          sink.emit(1, ops::converted(grads.dk, dtype));
          sink.emit(2, ops::converted(grads.dv, dtype));
          if (grads.dbias) sink.emit(kBias, ops::converted(grads.dbias, bias_dtype));
        });
    result.o = std::move(o);
  }
  return {std::move(result.o), std::move(result.lse)};
}

}  // namespace

std::shared_ptr<SequencePlanCache> enable_context_parallel(
    dtensor::DistributedEngine& engine, const planner::ContextParallelPlan& options,
    SequenceDealer dealer) {
  check(options.ulysses_degree == 0 || options.rotate == Rotate::kUlysses,
        "context_parallel: ulysses_degree is {}, but rotate is {}", options.ulysses_degree,
        to_string(options.rotate));
  auto plans = std::make_shared<SequencePlanCache>(rotate_of(options));
  const auto kept = std::make_shared<KeptPositions>();
  engine.register_implementation({planner::OpId::kAttention,
                                  {MeshRole::kSequence, MeshRole::kKeys},
                                  [options, plans, kept, dealer](const LocalCall& call) {
                                    if (dealer == SequenceDealer::kBalancer)
                                      check_lengths(call, options);
                                    return call.decision.mesh_dims(MeshRole::kKeys).empty()
                                               ? attend_along_sequence(call, options, *plans)
                                               : attend_to_kept_keys(call, *kept);
                                  },
                                  true});
  engine.register_implementation(
      {planner::OpId::kAttentionRows, {MeshRole::kKeys}, attend_rows_to_kept_keys, true});
  return plans;
}

}  // namespace meshloom::parallel
