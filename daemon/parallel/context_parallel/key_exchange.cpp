// SPDX-License-Identifier: Apache-2.0
#include "daemon/parallel/context_parallel/key_exchange.h"

#include <algorithm>
#include <functional>
#include <numeric>

#include "daemon/tensor/execution_context.h"

namespace meshloom::parallel {
namespace {

using planner::Rotate;

/// The calls among the members of a plan, who are some of the ranks along its mesh dims.
class Members {
 public:
  Members(const SequencePlan& plan, Collectives& collectives)
      : plan_(plan), collectives_(collectives) {}

  int count() const { return static_cast<int>(plan_.members.size()); }
  int self() const { return plan_.member; }
  /// `places` before this member in the ring, or behind it if negative.
  int before(int places) const { return ((self() - places) % count() + count()) % count(); }

  /// Pieces of x for each member, one after the other, and of each member to here.
  PendingTensorPtr exchange(const Tensor& x, const std::vector<std::int64_t>& sent,
                            const std::vector<std::int64_t>& received) const {
    return collectives_.all_to_all(x, by_rank(sent), by_rank(received), plan_.mesh_dims);
  }
  /// All of x to the next member; the previous one sends `received` elements.
  PendingTensorPtr pass_on(const Tensor& x, std::int64_t received) const {
    std::vector<std::int64_t> to(plan_.members.size(), 0), from = to;
    to[static_cast<std::size_t>(before(-1))] = x.numel();
    from[static_cast<std::size_t>(before(1))] = received;
    return exchange(x, to, from);
  }
  PendingTensorPtr all_gather(const Tensor& x) const {
    return collectives_.all_gather(x, plan_.mesh_dims);
  }

 private:
  std::vector<std::int64_t> by_rank(const std::vector<std::int64_t>& counts) const {
    std::vector<std::int64_t> all(static_cast<std::size_t>(plan_.ranks), 0);
    for (std::size_t m = 0; m < counts.size(); ++m)
      all[static_cast<std::size_t>(plan_.members[m])] = counts[m];
    return all;
  }

  const SequencePlan& plan_;
  Collectives& collectives_;
};

/// What the exchanges of one call have in common.
struct Part {
  const SequencePlan& plan;
  Members members;
  Tensor k, v;
  KeySizes sizes;

  Part(const SequencePlan& p, Collectives& collectives, const Tensor& keys, const Tensor& values)
      : plan(p), members(p, collectives), k(keys), v(values), sizes(keys, values) {}

  /// The source of a step of the schedule.
  int source(int step) const { return members.before(step); }
  KeyBundle bundle_of(int member) const { return KeyBundle::of_member(plan, sizes, member); }
  /// The keys of a step that queries here see.
  KeyBundle seen_in(int step) const {
    return bundle(
        [step](const RowGroup& g) { return g.steps[static_cast<std::size_t>(step)].keys; });
  }
  /// Those of this member's keys that the queries of `member` see.
  KeyBundle requested_by(int member) const {
    return bundle(
        [member](const RowGroup& g) { return g.requested[static_cast<std::size_t>(member)]; });
  }
  Tensor flat(std::int64_t numel, DType dtype) const {
    return empty(k.context(), Shape{numel}, dtype, MemoryKind::kSymmetric);
  }
  /// This member's own keys in a flat tensor of at least `numel` elements.
  Tensor packed(std::int64_t numel) const {
    const KeyBundle own = bundle_of(members.self());
    Tensor packed = flat(std::max(numel, own.numel()), k.dtype());
    copy_keys(own.blocks(packed, 0), own_blocks(plan, k, v));
    return packed;
  }

 private:
  KeyBundle bundle(const std::function<planner::IndexRanges(const RowGroup&)>& keys_of) const {
    std::vector<planner::IndexRanges> keys;
    for (const RowGroup& group : plan.groups) keys.push_back(keys_of(group));
    return {plan, sizes, std::move(keys)};
  }
};

class GatheredKeys final : public KeyExchange {
 public:
  explicit GatheredKeys(Part part) : part_(std::move(part)) {
    for (int m = 0; m < part_.members.count(); ++m)
      longest_ = std::max(longest_, part_.bundle_of(m).numel());
    if (part_.members.count() > 1) pending_ = part_.members.all_gather(part_.packed(longest_));
  }
  std::vector<KeyBlock> take(int step) override {
    if (step == 0) return own_blocks(part_.plan, part_.k, part_.v);
    if (pending_) all_ = std::exchange(pending_, nullptr)->wait();
    const int source = part_.source(step);
    return part_.bundle_of(source).blocks(all_, source * longest_);
  }

 private:
  Part part_;
  std::int64_t longest_ = 0;
  PendingTensorPtr pending_;
  Tensor all_;
};

class PassedKeys final : public KeyExchange {
 public:
  explicit PassedKeys(Part part) : part_(std::move(part)) {
    if (part_.members.count() > 1) pass_on(part_.packed(0), 1);
  }
  std::vector<KeyBlock> take(int step) override {
    if (step == 0) return own_blocks(part_.plan, part_.k, part_.v);
    const Tensor arrived = std::exchange(pending_, nullptr)->wait();
    if (step + 1 < part_.members.count()) pass_on(arrived, step + 1);
    return part_.bundle_of(part_.source(step)).blocks(arrived, 0);
  }

 private:
  void pass_on(const Tensor& bundle, int next_step) {
    pending_ = part_.members.pass_on(bundle, part_.bundle_of(part_.source(next_step)).numel());
  }

  Part part_;
  PendingTensorPtr pending_;
};

/// Where the bundles of the steps lie in one flat tensor: by source, in rank order. The own one is
/// empty.
class StepPlaces {
 public:
  explicit StepPlaces(const Part& part)
      : sizes_(static_cast<std::size_t>(part.members.count()), 0), first_(sizes_) {
    for (int step = 1; step < part.members.count(); ++step)
      sizes_[static_cast<std::size_t>(part.source(step))] = part.seen_in(step).numel();
    for (std::size_t m = 0; m < sizes_.size(); ++m) {
      first_[m] = numel_;
      numel_ += sizes_[m];
    }
  }
  const std::vector<std::int64_t>& sizes() const { return sizes_; }
  std::int64_t first(int source) const { return first_[static_cast<std::size_t>(source)]; }
  std::int64_t numel() const { return numel_; }

 private:
  std::vector<std::int64_t> sizes_, first_;
  std::int64_t numel_ = 0;
};

/// The sizes of what the other members want of this one, by member.
std::vector<std::int64_t> requested_sizes(const Part& part) {
  std::vector<std::int64_t> sizes;
  for (int m = 0; m < part.members.count(); ++m)
    sizes.push_back(m == part.members.self() ? 0 : part.requested_by(m).numel());
  return sizes;
}

class PulledKeys final : public KeyExchange {
 public:
  explicit PulledKeys(Part part) : part_(std::move(part)), places_(part_) {
    if (part_.members.count() == 1) return;
    const std::vector<std::int64_t> sent = requested_sizes(part_);
    const Tensor flat =
        part_.flat(std::accumulate(sent.begin(), sent.end(), std::int64_t{0}), part_.k.dtype());
    const std::vector<KeyBlock> own = own_blocks(part_.plan, part_.k, part_.v);
    std::int64_t base = 0;
    for (int m = 0; m < part_.members.count(); ++m) {
      if (m == part_.members.self()) continue;
      copy_keys(part_.requested_by(m).blocks(flat, base), own);
      base += sent[static_cast<std::size_t>(m)];
    }
    pending_ = part_.members.exchange(flat, sent, places_.sizes());
  }
  std::vector<KeyBlock> take(int step) override {
    if (step == 0) return own_blocks(part_.plan, part_.k, part_.v);
    if (pending_) arrived_ = std::exchange(pending_, nullptr)->wait();
    return part_.seen_in(step).blocks(arrived_, places_.first(part_.source(step)));
  }

 private:
  Part part_;
  StepPlaces places_;
  PendingTensorPtr pending_;
  Tensor arrived_;
};

/// A sum of each member's gradients goes once round the ring, from its owner back to its owner.
class PassedGradients final : public GradientReturn {
 public:
  explicit PassedGradients(Part part) : part_(std::move(part)) {}

  std::vector<KeyBlock> open(int step) override {
    step_ = step;
    const KeyBundle bundle = part_.bundle_of(part_.source(step));
    added_ =
        zeros(part_.k.context(), Shape{bundle.numel()}, DType::kFloat32, MemoryKind::kSymmetric);
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
  std::vector<KeyBlock> finish() override {
    const Tensor own = pending_ ? std::exchange(pending_, nullptr)->wait() : added_;
    return part_.bundle_of(part_.members.self()).blocks(own, 0);
  }

 private:
  Part part_;
  int step_ = 0;
  Tensor added_;
  PendingTensorPtr pending_;
};

class ReturnedGradients final : public GradientReturn {
 public:
  explicit ReturnedGradients(Part part)
      : part_(std::move(part)),
        places_(part_),
        others_(zeros(part_.k.context(), Shape{places_.numel()}, DType::kFloat32,
                      MemoryKind::kSymmetric)),
        own_(zeros(part_.k.context(), Shape{own_bundle().numel()}, DType::kFloat32)) {}

  std::vector<KeyBlock> open(int step) override {
    if (step == 0) return own_bundle().blocks(own_, 0);
    return part_.seen_in(step).blocks(others_, places_.first(part_.source(step)));
  }
  void close() override {}
  std::vector<KeyBlock> finish() override {
    std::vector<KeyBlock> own = own_bundle().blocks(own_, 0);
    if (part_.members.count() == 1) return own;
    const std::vector<std::int64_t> received = requested_sizes(part_);
    const Tensor arrived = part_.members.exchange(others_, places_.sizes(), received)->wait();
    const Tensor sum = zeros(own_.context(), own_.shape(), DType::kFloat32);
    const std::vector<KeyBlock> sums = own_bundle().blocks(sum, 0);
    std::int64_t base = 0;
    for (int m = 0; m < part_.members.count(); ++m) {
      if (m == part_.members.self()) {
        add_into(sum, own_);
        continue;
      }
      add_keys(sums, part_.requested_by(m).blocks(arrived, base));
      base += received[static_cast<std::size_t>(m)];
    }
    return sums;
  }

 private:
  KeyBundle own_bundle() const { return part_.bundle_of(part_.members.self()); }

  Part part_;
  StepPlaces places_;
  Tensor others_, own_;
};

}  // namespace

std::unique_ptr<KeyExchange> exchange_keys(Rotate rotate, const SequencePlan& plan,
                                           Collectives& collectives, const Tensor& k,
                                           const Tensor& v) {
  Part part(plan, collectives, k, v);
  switch (rotate) {
    case Rotate::kAllGather: return std::make_unique<GatheredKeys>(std::move(part));
    case Rotate::kAllToAll: return std::make_unique<PassedKeys>(std::move(part));
    default: return std::make_unique<PulledKeys>(std::move(part));
  }
}

std::unique_ptr<GradientReturn> return_gradients(Rotate rotate, const SequencePlan& plan,
                                                 Collectives& collectives, const Tensor& k,
                                                 const Tensor& v) {
  Part part(plan, collectives, k, v);
  if (rotate == Rotate::kAllGather || rotate == Rotate::kAllToAll)
    return std::make_unique<PassedGradients>(std::move(part));
  return std::make_unique<ReturnedGradients>(std::move(part));
}

}  // namespace meshloom::parallel
