// SPDX-License-Identifier: Apache-2.0
#include "daemon/parallel/fully_shard/fully_shard.h"

#include <algorithm>

#include "daemon/comm/backoff.h"
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
                       const std::vector<DataParallelInput>& inputs,
                       const FullyShardOptions& options)
    : context_(context), groups_(groups), options_(options) {
  std::vector<ShardCandidate> candidates;
  candidates.reserve(inputs.size());
  for (const DataParallelInput& input : inputs) candidates.push_back(input.candidate);
  choices_ = choose_shards(candidates, groups.gather->size(), options);
  // The root comes first, wherever its parameters do.
  for (std::size_t i = 0; i < inputs.size(); ++i)
    if (choices_[i].dim && unit_of(inputs[i].candidate.name).empty())
      unit_index(inputs[i].candidate.name);
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
  const std::vector<nn::NamedParameter> trained = trained_parameters(whole_);
  if (!trained.empty())
    whole_reducer_ = std::make_unique<GradientReducer>(context_, *groups_.data, trained);
  set_hooks();
}

FullyShard::~FullyShard() {
  for (Unit& unit : units_)
    for (ShardedParameter& parameter : unit.shards->parameters())
      if (parameter.trained) parameter.full.leaf_grad()->set_ready_hook({});
}

std::size_t FullyShard::unit_index(const std::string& parameter_name) {
  const std::string_view name = unit_of(parameter_name);
  for (std::size_t i = 0; i < units_.size(); ++i)
    if (units_[i].shards->name() == name) return i;
  Unit unit;
  unit.values = std::make_unique<Provider>(*this, units_.size(), true);
  unit.gradients = std::make_unique<Provider>(*this, units_.size(), false);
  unit.shards = std::make_unique<ShardUnit>(context_, groups_, std::string(name), *unit.values,
                                            *unit.gradients);
  unit.root = name.empty();
  units_.push_back(std::move(unit));
  return units_.size() - 1;
}

void FullyShard::set_hooks() {
  for (std::size_t u = 0; u < units_.size(); ++u)
    for (ShardedParameter& parameter : units_[u].shards->parameters())
      if (parameter.trained) parameter.full.leaf_grad()->set_ready_hook([this, u] { on_ready(u); });
}

void FullyShard::begin_forward(bool backward_follows) {
  check_internal(phase_ == Phase::kIdle, "fully_shard: begin_forward inside a micro batch");
  phase_ = Phase::kForward;
  backward_follows_ = backward_follows;
  repeated_ = false;
  for (std::size_t u = 0; u < units_.size(); ++u) {
    Unit& unit = units_[u];
    unit.visited = false;
    unit.kept = unit.root || !options_.reshard_after_forward;
    unit.missing = unit.shards->trained();
    to_gather_.push_back(u);
  }
  poll_point_.emplace(context_, [this] { poll(); });
  start_next_gather();
  start_next_gather();
}

void FullyShard::begin_generation(std::int64_t keep_bytes) {
  begin_forward(false);
  repeated_ = true;
  // Two blocks are there at any time, the present one and the next: if no more than that would
  // come and go, they may as well stay.
  std::size_t others = 0;
  for (Unit& unit : units_) {
    if (unit.root) continue;
    keep_bytes -= unit.shards->full_bytes();
    if (keep_bytes >= 0) unit.kept = true;
    if (!unit.kept) ++others;
  }
  if (others <= 2)
    for (Unit& unit : units_) unit.kept = true;
}

void FullyShard::next_pass() {
  visit_rest();
  for (Unit& unit : units_) {
    // The first block may be on its way again.
    if (unit.shards->gathered() && !unit.kept) unit.shards->release();
    unit.visited = false;
  }
}

bool FullyShard::gather_in_flight() const {
  return newest_ && units_[*newest_].shards->gathering();
}

bool FullyShard::start_next_gather() {
  if (to_gather_.empty() && repeated_)
    for (std::size_t u = 0; u < units_.size(); ++u)
      if (!units_[u].kept) to_gather_.push_back(u);
  if (to_gather_.empty()) return false;
  newest_ = to_gather_.front();
  to_gather_.pop_front();
  units_[*newest_].shards->start_gather();
  return true;
}

void FullyShard::use(std::size_t u) {
  ShardUnit& shards = *units_[u].shards;
  while (!shards.gathering() && !shards.gathered())
    if (!start_next_gather())
      throw Unimplemented(
          fmt::format("fully_shard: '{}' is used again after it was freed{}", shards.name(),
                      phase_ == Phase::kForward ? "; reshard_after_forward: false keeps it" : ""));
  shards.finish_gather();
  if (phase_ == Phase::kForward) {
    units_[u].visited = true;
    // The last block stays: backward begins with it.
    for (std::size_t before = 0; before < u; ++before)
      if (units_[before].visited && !units_[before].kept) units_[before].shards->release();
  }
  if (phase_ == Phase::kBackward && !units_[u].root) {
    // Blocks without gradients that backward has passed; others go when their gradients are sent.
    for (std::size_t above = u + 1; above < units_.size(); ++above) {
      const Unit& unit = units_[above];
      if (!unit.kept && unit.shards->trained() == 0 && unit.shards->gathered())
        unit.shards->release();
    }
  }
  if (!gather_in_flight()) start_next_gather();
}

void FullyShard::visit_rest() {
  for (std::size_t u = 0; u < units_.size(); ++u)
    if (!units_[u].visited && !units_[u].shards->gathered()) use(u);
}

void FullyShard::release_all() {
  for (Unit& unit : units_) unit.shards->release();
  to_gather_.clear();
  newest_.reset();
  phase_ = Phase::kIdle;
  poll_point_.reset();
}

void FullyShard::end_forward() {
  visit_rest();
  release_all();
}

void FullyShard::begin_backward(bool last) {
  check_internal(phase_ == Phase::kForward && backward_follows_,
                 "fully_shard: backward without forward");
  visit_rest();
  phase_ = Phase::kBackward;
  last_ = last;
  if (last && whole_reducer_) whole_reducer_->begin();
  // What is still there is the same on all ranks: the last block and those that are kept.
  for (std::size_t u = units_.size(); u-- > 0;) {
    if (u + 1 < units_.size() && !units_[u].kept) units_[u].shards->release();
    if (!units_[u].shards->gathered()) to_gather_.push_back(u);
    if (!units_[u].root && units_[u].shards->trained() > 0) to_reduce_.push_back(u);
  }
  if (!units_.empty() && units_[0].root && units_[0].shards->trained() > 0) to_reduce_.push_back(0);
  start_next_gather();
}

void FullyShard::on_ready(std::size_t u) {
  if (phase_ != Phase::kBackward) return;
  Unit& unit = units_[u];
  check_internal(unit.missing > 0, "fully_shard: a gradient of {} changed after it was sent",
                 unit.shards->name());
  --unit.missing;
  while (!to_reduce_.empty() && units_[to_reduce_.front()].missing == 0) {
    while (reducing_.size() >= kMostReducing) finish_oldest();
    start_next_reduce();
  }
}

void FullyShard::start_next_reduce() {
  const std::size_t u = to_reduce_.front();
  to_reduce_.pop_front();
  ShardUnit& shards = *units_[u].shards;
  shards.start_reduce(first_);
  if (shards.gathered()) shards.release();
  reducing_.push_back(u);
}

void FullyShard::finish_oldest() {
  const std::size_t u = reducing_.front();
  units_[u].shards->finish_reduce(last_);
  reducing_.pop_front();
}

void FullyShard::poll() {
  if (!reducing_.empty()) {
    if (units_[reducing_.front()].shards->poll_reduce()) finish_oldest();
  } else if (gather_in_flight()) {
    units_[*newest_].shards->poll_gather();
  }
}

bool FullyShard::step_gathers() {
  if (!gather_in_flight()) return start_next_gather();
  ShardUnit& shards = *units_[*newest_].shards;
  if (!shards.poll_gather()) return false;
  shards.release();
  return true;
}

bool FullyShard::step_reductions() {
  if (!reducing_.empty() && units_[reducing_.front()].shards->poll_reduce()) {
    finish_oldest();
    return true;
  }
  if (to_reduce_.empty() || reducing_.size() >= kMostReducing) return false;
  start_next_reduce();
  return true;
}

void FullyShard::end_backward() {
  // Neither waits for the other: a rank that computes may need any number of gathers before it has
  // the next gradients.
  comm::Backoff backoff;
  while (!to_gather_.empty() || gather_in_flight() || !to_reduce_.empty() || !reducing_.empty()) {
    const bool gathered = step_gathers();
    const bool reduced = step_reductions();
    if (gathered || reduced) {
      backoff.reset();
    } else {
      backoff.pause();
    }
  }
  if (last_) finish_step();
  first_ = false;
  release_all();
}

void FullyShard::sum_gradients() {
  check_internal(phase_ == Phase::kIdle, "fully_shard: sum_gradients inside a micro batch");
  for (Unit& unit : units_) unit.shards->start_replicas();
  finish_step();
}

void FullyShard::finish_step() {
  for (Unit& unit : units_) unit.shards->finish_replicas();
  if (whole_reducer_) whole_reducer_->finish();
  // A parameter that no rank has a gradient of has none; one that some rank has, all have.
  std::vector<float> flags;
  for (Unit& unit : units_)
    for (const bool had : unit.shards->had_gradients()) flags.push_back(had ? 1.0f : 0.0f);
  const Tensor all = from_values(context_, {static_cast<std::int64_t>(flags.size())},
                                 std::span<const float>(flags), DType::kFloat32);
  groups_.data->all_reduce(all.view(), comm::ReduceOp::kMax)
      ->enqueue_wait(context_.kernel_context().stream);
  // What this rank has, all have. Only if it lacks some are the flags read.
  const bool all_here = std::all_of(flags.begin(), flags.end(), [](float f) { return f > 0.0f; });
  const std::vector<double> had =
      all_here ? std::vector<double>(flags.begin(), flags.end()) : all.to_vector();
  std::size_t i = 0;
  for (Unit& unit : units_) {
    for (ShardedParameter& parameter : unit.shards->parameters()) {
      const auto& leaf = parameter.shard.value.leaf_grad();
      const bool has_one = had[i++] > 0.0;
      if (!parameter.trained) continue;
      if (has_one) {
        leaf->mark_written();
      } else {
        leaf->clear();
      }
    }
  }
}

void FullyShard::take_part(bool last) {
  if (phase_ == Phase::kIdle) begin_forward(true);
  if (phase_ == Phase::kForward) begin_backward(last);
  end_backward();
}

void FullyShard::take_part_forward() {
  if (phase_ == Phase::kIdle) begin_forward(false);
  end_forward();
}

}  // namespace meshloom::parallel
