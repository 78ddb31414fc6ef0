// SPDX-License-Identifier: Apache-2.0
#include "daemon/parallel/context_parallel/gradient_return.h"

#include <functional>
#include <utility>

#include "daemon/parallel/context_parallel/exchange_part.h"
#include "daemon/tensor/execution_context.h"
#include "daemon/tensor/ops/op_support.h"

namespace meshloom::parallel {
namespace {

using planner::Rotate;

Tensor zero_sums(const Tensor& like) {
  return zeros(like.context(), like.shape(), DType::kFloat32);
}

/// A sum of each member's gradients goes once round the ring, from its owner back to its owner.
class PassedGradients final : public GradientReturn {
 public:
  explicit PassedGradients(ExchangePart part) : part_(std::move(part)) {}

  std::vector<KeyBlock> open(int step) override {
    step_ = step;
    const KeyBundle bundle = part_.bundle_of(part_.source(step));
    added_ = part_.flat(bundle.numel(), DType::kFloat32);
    part_.k.context().backend().fill(part_.k.context().kernel_context(), added_.view(), 0.0);
    return bundle.blocks(added_, 0);
  }
  void close() override {
    if (pending_) {
      const Tensor sum = std::exchange(pending_, nullptr)->wait();
      add_into(sum, added_);
      added_ = sum;
    }
    if (part_.members.count() == 1) return;
    const KeyBundle next = part_.bundle_of(part_.source(step_ + 1));
    pending_ = part_.members.pass_on(added_, next.numel());
  }
  KeyGrads finish() override {
    const Tensor own = pending_ ? std::exchange(pending_, nullptr)->wait() : added_;
    KeyGrads grads{empty(own.context(), part_.k.shape(), DType::kFloat32),
                   empty(own.context(), part_.v.shape(), DType::kFloat32)};
    copy_keys(own_blocks(part_.plan, grads.dk, grads.dv),
              part_.bundle_of(part_.members.self()).blocks(own, 0));
    return grads;
  }

 private:
  ExchangePart part_;
  int step_ = 0;
  Tensor added_;
  PendingTensorPtr pending_;
};

/// Each member sums what its queries give to every other's keys; owners add these sums in rank
/// order, where they lie or out of messages.
class ReturnedGradients final : public GradientReturn {
 public:
  explicit ReturnedGradients(ExchangePart part)
      : part_(std::move(part)),
        places_(part_),
        others_(part_.flat(places_.numel(), DType::kFloat32)),
        own_{zero_sums(part_.k), zero_sums(part_.v)} {
    ExecutionContext& context = others_.context();
    if (others_.numel() > 0) context.backend().fill(context.kernel_context(), others_.view(), 0.0);
  }

  std::vector<KeyBlock> open(int step) override {
    if (step == 0) return own_blocks(part_.plan, own_.dk, own_.dv);
    return part_.seen_in(step).blocks(others_, places_.first(part_.source(step)));
  }
  void close() override {}

  KeyGrads finish() override {
    if (part_.members.count() == 1) return own_;
    const auto self = static_cast<std::size_t>(part_.members.self());
    std::vector<Tensor> pieces;  // by owner
    for (int m = 0; m < part_.members.count(); ++m)
      pieces.push_back(ops::alias(others_, {places_.sizes()[static_cast<std::size_t>(m)]}, {1},
                                  places_.first(m)));
    if (const auto exposed =
            part_.members.expose(pieces, planner::CollectiveKind::kAllToAll, others_.numel())) {
      add_in_rank_order([&](int member) {
        const std::vector<Tensor> theirs = exposed->of(part_.members.rank_of(member));
        check_internal(theirs.size() == pieces.size(), "a rank shows {} tensors", theirs.size());
        return part_.requested_by(member).blocks(theirs[self], 0);
      });
      exposed->close();
      return own_;
    }
    const std::vector<std::int64_t> received = part_.requested_sizes();
    const Tensor arrived = part_.members.exchange(others_, places_.sizes(), received)->wait();
    std::int64_t next = 0;
    add_in_rank_order([&](int member) {
      const std::int64_t base = next;
      next += received[static_cast<std::size_t>(member)];
      return part_.requested_by(member).blocks(arrived, base);
    });
    return own_;
  }

 private:
  /// `given` is asked for every other member's, in rank order.
  void add_in_rank_order(const std::function<std::vector<KeyBlock>(int)>& given) const {
    const std::vector<KeyBlock> own = own_blocks(part_.plan, own_.dk, own_.dv);
    const int self = part_.members.self();
    // A sum of two is the same in any order, so that one rank before this one needs no memory.
    if (self == 1) add_keys(own, given(0));
    if (self > 1) {
      const KeyGrads before{zero_sums(own_.dk), zero_sums(own_.dv)};
      const std::vector<KeyBlock> sums = own_blocks(part_.plan, before.dk, before.dv);
      for (int m = 0; m < self; ++m) add_keys(sums, given(m));
      add_into(own_.dk, before.dk);
      add_into(own_.dv, before.dv);
    }
    for (int m = self + 1; m < part_.members.count(); ++m) add_keys(own, given(m));
  }

  ExchangePart part_;
  StepPlaces places_;
  Tensor others_;
  KeyGrads own_;
};

}  // namespace

std::unique_ptr<GradientReturn> return_gradients(Rotate rotate, const SequencePlan& plan,
                                                 Collectives& collectives, const Tensor& k,
                                                 const Tensor& v) {
  ExchangePart part(plan, collectives, k, v);
  if (rotate == Rotate::kAllGather || rotate == Rotate::kAllToAll)
    return std::make_unique<PassedGradients>(std::move(part));
  return std::make_unique<ReturnedGradients>(std::move(part));
}

}  // namespace meshloom::parallel
