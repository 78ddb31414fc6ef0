// SPDX-License-Identifier: Apache-2.0
#include "daemon/parallel/fully_shard/fully_shard.h"

#include "kernels/base/error.h"

namespace meshloom::parallel {
namespace {

/// Full gradients of so many blocks may wait for their sums.
constexpr std::size_t kMostReducing = 2;

}  // namespace

void FullyShard::Provider::provide() {
  if (values_) {
    owner_.use(unit_);
  } else {
    owner_.units_[unit_].shards->provide_gradients();
  }
}

FullyShard::FullyShard(ExecutionContext& context, const FullyShardGroups& groups,
                       const std::vector<FullyShardInput>& inputs, const FullyShardOptions& options)
    : context_(context), groups_(groups), options_(options) {
  std::vector<ShardCandidate> candidates;
  for (const FullyShardInput& input : inputs) candidates.push_back(input.candidate);
  choices_ = choose_shards(candidates, groups.shard->size(), options);
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    const std::string& name = inputs[i].candidate.name;
    if (choices_[i].dim) {
      const std::size_t unit = unit_index(name);
      units_[unit].shards->add(name, inputs[i].parameter->value, *choices_[i].dim);
    } else {
      materialize(inputs[i].parameter->value);
      whole_.push_back({name, inputs[i].parameter});
    }
  }
  for (Unit& unit : units_) unit.shards->seal();
  std::vector<std::size_t> next(units_.size(), 0);
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    const std::string& name = inputs[i].candidate.name;
    nn::Parameter* parameter = inputs[i].parameter;
    if (choices_[i].dim) {
      const std::size_t unit = unit_index(name);
      parameter = &units_[unit].shards->parameters()[next[unit]++].shard;
      parameter->init = inputs[i].parameter->init;
    }
    parameters_.push_back({name, parameter});
  }
  if (!whole_.empty())
    whole_reducer_ = std::make_unique<GradientReducer>(context_, *groups_.data, whole_);
  set_hooks();
}

FullyShard::~FullyShard() {
  if (phase_ != Phase::kIdle) context_.set_poll({});
  for (Unit& unit : units_)
    for (ShardedParameter& parameter : unit.shards->parameters())
      parameter.full.leaf_grad()->set_ready_hook({});
}

std::size_t FullyShard::unit_index(const std::string& parameter_name) {
  const std::string_view name = unit_of(parameter_name);
  for (std::size_t i = 0; i < units_.size(); ++i)
    if (units_[i].shards->name() == name) return i;
  Unit unit;
  unit.values = std::make_unique<Provider>(*this, units_.size(), true);
  unit.gradients = std::make_unique<Provider>(*this, units_.size(), false);
  unit.shards = std::make_unique<ShardUnit>(context_, *groups_.shard, groups_.replicas,
                                            std::string(name), *unit.values, *unit.gradients);
  unit.root = name.empty();
  units_.push_back(std::move(unit));
  return units_.size() - 1;
}

void FullyShard::set_hooks() {
  for (std::size_t u = 0; u < units_.size(); ++u)
    for (ShardedParameter& parameter : units_[u].shards->parameters())
      parameter.full.leaf_grad()->set_ready_hook([this, u] { on_ready(u); });
}

void FullyShard::start_polling() {
  context_.set_poll([this] { poll(); });
}

void FullyShard::begin_forward(bool backward_follows) {
  check_internal(phase_ == Phase::kIdle, "fully_shard: begin_forward inside a micro batch");
  phase_ = Phase::kForward;
  backward_follows_ = backward_follows;
  repeated_ = false;
  current_.reset();
  for (Unit& unit : units_) {
    unit.visited = unit.reduced = false;
    unit.kept = unit.root || !options_.reshard_after_forward;
    unit.missing = unit.shards->parameters().size();
  }
  start_polling();
  for (std::size_t u = 0; u < units_.size() && u < 2; ++u) {
    units_[u].shards->start_gather();
    prefetched_ = u;
  }
}

void FullyShard::begin_generation(std::int64_t keep_bytes) {
  begin_forward(false);
  repeated_ = true;
  keep_blocks(keep_bytes);
}

void FullyShard::keep_blocks(std::int64_t bytes) {
  // Two blocks are there at any time, the present one and the next: if no more than that would
  // come and go, they may as well stay.
  std::size_t others = 0;
  for (Unit& unit : units_) {
    if (unit.root) continue;
    bytes -= unit.shards->full_bytes();
    if (bytes >= 0) unit.kept = true;
    if (!unit.kept) ++others;
  }
  if (others <= 2)
    for (Unit& unit : units_) unit.kept = true;
}

void FullyShard::next_pass() {
  for (Unit& unit : units_) unit.visited = false;
}

void FullyShard::use(std::size_t u) {
  ShardUnit& shards = *units_[u].shards;
  shards.finish_gather();
  if (prefetched_ == u) prefetched_.reset();
  if (phase_ == Phase::kForward) {
    units_[u].visited = true;
    if (!units_[u].root) {
      // The last block stays: backward begins with it.
      if (current_ && *current_ != u && !units_[*current_].kept)
        units_[*current_].shards->release();
      current_ = u;
    }
    prefetch_after(u);
  } else if (phase_ == Phase::kBackward) {
    prefetch_before(u);
  }
}

void FullyShard::prefetch_after(std::size_t u) {
  const std::size_t count = units_.size();
  for (std::size_t step = 1; step < count && (repeated_ || u + step < count); ++step) {
    const std::size_t next = (u + step) % count;
    if (units_[next].root) continue;
    if (!units_[next].shards->gathered()) {
      units_[next].shards->start_gather();
      prefetched_ = next;
    } else if (repeated_ && units_[next].kept) {
      continue;
    }
    return;
  }
}

void FullyShard::prefetch_before(std::size_t u) {
  for (std::size_t next = u; next-- > 0;) {
    if (units_[next].root || units_[next].shards->gathered()) continue;
    units_[next].shards->start_gather();
    prefetched_ = next;
    return;
  }
}

void FullyShard::end_forward() {
  for (Unit& unit : units_) unit.shards->release();
  prefetched_.reset();
  phase_ = Phase::kIdle;
  context_.set_poll({});
}

void FullyShard::begin_backward(bool last) {
  check_internal(phase_ == Phase::kForward && backward_follows_,
                 "fully_shard: backward without forward");
  phase_ = Phase::kBackward;
  last_ = last;
  if (last && whole_reducer_) {
    whole_reducer_->begin();
    start_polling();
  }
  prefetch_before(units_.size());
}

void FullyShard::on_ready(std::size_t u) {
  if (phase_ != Phase::kBackward) return;
  Unit& unit = units_[u];
  check_internal(unit.missing > 0, "fully_shard: a gradient of {} changed after it was sent",
                 unit.shards->name());
  if (--unit.missing == 0) reduce(u);
}

void FullyShard::reduce(std::size_t u) {
  while (reducing_.size() >= kMostReducing) finish_oldest();
  units_[u].shards->start_reduce(first_);
  units_[u].shards->release();
  units_[u].reduced = true;
  reducing_.push_back(u);
}

void FullyShard::finish_oldest() {
  const std::size_t u = reducing_.front();
  units_[u].shards->finish_reduce(last_);
  reducing_.pop_front();
}

void FullyShard::poll() {
  if (whole_reducer_ && phase_ == Phase::kBackward && last_) whole_reducer_->poll();
  if (!reducing_.empty()) {
    if (units_[reducing_.front()].shards->poll()) finish_oldest();
  } else if (prefetched_) {
    units_[*prefetched_].shards->poll();
  }
}

void FullyShard::end_backward() {
  for (std::size_t u = units_.size(); u-- > 0;)
    if (!units_[u].reduced) reduce(u);
  while (!reducing_.empty()) finish_oldest();
  if (last_) {
    for (Unit& unit : units_) unit.shards->finish_replicas();
    if (whole_reducer_) whole_reducer_->finish();
    agree_on_gradients();
  }
  prefetched_.reset();
  first_ = false;
  phase_ = Phase::kIdle;
  context_.set_poll({});
}

/// A parameter that no rank has a gradient of has none; one that some rank has, all have.
void FullyShard::agree_on_gradients() {
  std::vector<float> flags;
  for (Unit& unit : units_)
    for (const bool had : unit.shards->had_gradients()) flags.push_back(had ? 1.0f : 0.0f);
  const Shape shape = {static_cast<std::int64_t>(flags.size())};
  groups_.data->all_reduce(make_view(flags.data(), DType::kFloat32, shape), comm::ReduceOp::kMax)
      ->wait_host();
  std::size_t i = 0;
  for (Unit& unit : units_) {
    for (ShardedParameter& parameter : unit.shards->parameters()) {
      const auto& leaf = parameter.shard.value.leaf_grad();
      if (flags[i++] > 0.0f) {
        leaf->mark_written();
      } else {
        leaf->clear();
      }
    }
  }
}

void FullyShard::take_part(bool last) {
  if (phase_ == Phase::kIdle) begin_forward(true);
  if (phase_ == Phase::kForward) {
    visit_rest();
    begin_backward(last);
  }
  // In the order of a model's backward: blocks from the last to the first, then the root.
  for (const bool root : {false, true}) {
    for (std::size_t u = units_.size(); u-- > 0;) {
      if (units_[u].root != root || units_[u].reduced) continue;
      if (!units_[u].shards->gathered()) use(u);
      reduce(u);
    }
  }
  end_backward();
}

void FullyShard::take_part_forward() {
  if (phase_ == Phase::kIdle) begin_forward(false);
  visit_rest();
  end_forward();
}

void FullyShard::visit_rest() {
  for (std::size_t u = 0; u < units_.size(); ++u)
    if (!units_[u].visited && !units_[u].shards->gathered()) use(u);
}

}  // namespace meshloom::parallel
