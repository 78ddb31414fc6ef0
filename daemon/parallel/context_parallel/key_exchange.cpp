// SPDX-License-Identifier: Apache-2.0
#include "daemon/parallel/context_parallel/key_exchange.h"

#include <algorithm>

#include "daemon/parallel/context_parallel/exchange_part.h"

namespace meshloom::parallel {
namespace {

using planner::IndexRanges;
using planner::Rotate;

class GatheredKeys final : public KeyExchange {
 public:
  explicit GatheredKeys(ExchangePart part) : part_(std::move(part)) {
    longest_ = part_.longest();
    if (part_.members.count() > 1) pending_ = part_.members.all_gather(part_.packed(longest_));
  }
  std::vector<KeyBlock> take(int step) override {
    if (step == 0) return own_blocks(part_.plan, part_.k, part_.v);
    if (pending_) all_ = std::exchange(pending_, nullptr)->wait();
    const int source = part_.source(step);
    return part_.bundle_of(source).blocks(all_, source * longest_);
  }

 private:
  ExchangePart part_;
  std::int64_t longest_ = 0;
  PendingTensorPtr pending_;
  Tensor all_;
};

class PassedKeys final : public KeyExchange {
 public:
  explicit PassedKeys(ExchangePart part) : part_(std::move(part)) {
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

  ExchangePart part_;
  PendingTensorPtr pending_;
};

class PulledKeys final : public KeyExchange {
 public:
  explicit PulledKeys(ExchangePart part) : part_(std::move(part)), places_(part_) {
    if (part_.members.count() == 1) return;
    const std::vector<std::int64_t> sent = part_.requested_sizes();
    const Tensor flat = part_.flat(sum_of(sent), part_.k.dtype());
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
  ExchangePart part_;
  StepPlaces places_;
  PendingTensorPtr pending_;
  Tensor arrived_;
};

/// Keys of the others are read in their memory, all of them or those that are seen.
class ExposedKeys final : public KeyExchange {
 public:
  ExposedKeys(ExchangePart part, bool all, std::unique_ptr<ExposedTensors> exposed)
      : part_(std::move(part)), all_(all), exposed_(std::move(exposed)) {}

  std::vector<KeyBlock> take(int step) override {
    if (step == 0) return own_blocks(part_.plan, part_.k, part_.v);
    std::vector<KeyBlock> blocks;
    // Where nothing is seen nobody is waited for.
    if (part_.seen_in(step).numel() == 0) {
      for (const RowGroup& group : part_.plan.groups)
        blocks.push_back({{}, {}, group.steps[static_cast<std::size_t>(step)].keys});
      return blocks;
    }
    const int source = part_.source(step);
    const std::vector<Tensor> keys = exposed_->of(part_.members.rank_of(source));
    check_internal(keys.size() == 2, "a rank shows {} tensors", keys.size());
    for (const RowGroup& group : part_.plan.groups) {
      KeyBlock block{rows_of(keys[0], group), rows_of(keys[1], group),
                     group.parts[static_cast<std::size_t>(source)].keys};
      const IndexRanges& seen = group.steps[static_cast<std::size_t>(step)].keys;
      blocks.push_back(all_ ? std::move(block) : some_keys(block, seen));
    }
    return blocks;
  }
  void release() override { exposed_->release(); }
  void close() override { exposed_->close(); }

 private:
  ExchangePart part_;
  bool all_;
  std::unique_ptr<ExposedTensors> exposed_;
};

std::unique_ptr<KeyExchange> expose_keys(Rotate rotate, const ExchangePart& part) {
  if (part.members.count() == 1) return nullptr;
  const bool all = rotate == Rotate::kAllGather;
  // In the backward pass gradients go round a ring, a collective for each step, while the keys are
  // exposed. A ring with more steps than there is room for would wait for the end of the exposure,
  // and this for the ring.
  if (all && part.members.count() > planner::kMostGatheredInPlace) return nullptr;
  const std::int64_t others = part.members.count() - 1;
  const std::int64_t sent = all ? others * part.longest() : sum_of(part.requested_sizes());
  const Tensor keys[] = {part.k, part.v};
  auto exposed = part.members.expose(
      keys, all ? planner::CollectiveKind::kAllGather : planner::CollectiveKind::kAllToAll, sent);
  if (!exposed) return nullptr;
  return std::make_unique<ExposedKeys>(part, all, std::move(exposed));
}

}  // namespace

std::unique_ptr<KeyExchange> exchange_keys(Rotate rotate, const SequencePlan& plan,
                                           Collectives& collectives, const Tensor& k,
                                           const Tensor& v) {
  ExchangePart part(plan, collectives, k, v);
  if (rotate == Rotate::kAllToAll) return std::make_unique<PassedKeys>(std::move(part));
  if (auto exposed = expose_keys(rotate, part)) return exposed;
  if (rotate == Rotate::kAllGather) return std::make_unique<GatheredKeys>(std::move(part));
  return std::make_unique<PulledKeys>(std::move(part));
}

}  // namespace meshloom::parallel
