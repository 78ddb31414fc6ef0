// SPDX-License-Identifier: Apache-2.0
#include "daemon/train/model_run.h"

#include <array>
#include <cmath>
#include <utility>

#include "daemon/comm/symm_mem/tensors/symmetric_source.h"
#include "daemon/tensor/autograd/backward.h"
#include "daemon/tensor/ops/op_support.h"
#include "daemon/train/all_reduce_values.h"
#include "daemon/train/dtype_choice.h"
#include "daemon/train/generation.h"
#include "daemon/train/replica_check.h"
#include "daemon/train/resolve_plan.h"
#include "daemon/train/resume_check.h"
#include "kernels/base/error.h"

namespace meshloom::train {
namespace {

ExecutionContext::Options run_context_options(const RankResources& rank, std::uint64_t seed) {
  ExecutionContext::Options options = rank.context->options();
  options.seed = seed;
  if (!options.symmetric_allocator)
    options.symmetric_allocator = comm::make_symmetric_allocator(*rank.world);
  return options;
}

ModelStateOptions model_state_options(const v1::RunConfig& config) {
  ModelStateOptions options;
  options.optimizer = make_optimizer_settings(config.optimizer());
  options.plan = make_plan(config);
  return options;
}

/// sum += value, both of one element, in the width of `sum` and on the device.
void add_value(const Tensor& sum, const Tensor& value) {
  ExecutionContext& context = sum.context();
  const Tensor wide = empty_like(sum);
  copy_into(wide, value.detach());
  context.backend().binary(context.kernel_context(), kernels::BinaryOp::kAdd, sum.view(),
                           sum.view(), wide.view());
}

}  // namespace

ModelRun::ModelRun(const RankResources& resources, const v1::RunConfig& config,
                   const nn::ModelConfig& model, std::unique_ptr<RunMesh> mesh)
    : world_(*resources.world),
      context_(run_context_options(resources, config.training().seed())),
      config_(config),
      model_config_(model),
      mesh_(std::move(mesh)),
      state_(std::make_unique<ModelState>(context_, model_config_, model_state_options(config_),
                                          *mesh_)) {
  std::vector<std::string> names;
  for (const nn::NamedParameter& p : state_->optimizer().parameters()) names.push_back(p.name);
  block_checkpoints_ = planner::block_checkpoints(make_plan(config_), names);
}

ComputeClass ModelRun::compute_class() const {
  const bool data_parallel = config_.mesh().dp() == world_.size();
  const char* sequence = config_.plan().sequence_parallel() ? " with sequence_parallel" : "";
  const kernels::ComputeDescription compute = context_.backend().describe();
  return {compute.compute_class, compute.table_version, context_.threads().count, world_.size(),
          data_parallel ? std::string() : to_string(*mesh_->layout()) + sequence};
}

void ModelRun::load_state(const FoundCheckpoint& found) {
  const Manifest& manifest = found.manifest;
  check_resumable(manifest, config_, model_config_, found.folder.string());
  state_->load(CheckpointReader(found.folder, manifest));
  step_ = manifest.step;
}

std::filesystem::path ModelRun::save_state(const CheckpointLocation& location, Manifest manifest) {
  manifest.step = step_;
  manifest.seed = config_.training().seed();
  manifest.compute = compute_class();
  manifest.model_config = nn::to_hf_config(model_config_);
  manifest.run_config = to_json_text(config_);
  const auto state = state_->state();
  return write_checkpoint(world_, location, std::move(manifest), state);
}

nn::ForwardOptions ModelRun::forward_options(const HostBatch& batch) const {
  nn::ForwardOptions options;
  options.training = true;
  // Dropout is drawn by (step, sample inside the global batch), so it does not depend on how a
  // batch is split.
  options.dropout_step = static_cast<std::uint64_t>(step_);
  options.first_sample = static_cast<std::uint64_t>(batch.first_sample);
  options.block_checkpoints = block_checkpoints_;
  return options;
}

void ModelRun::forward_backward(const StepBatch& batch) {
  if (pending_ && pending_->summed)
    throw FailedPrecondition(
        "forward_backward: the gradients of the step before were not used yet; call optim_step");
  if (!pending_) {
    state_->optimizer().zero_grad();
    state_->data_parallel().begin_step();
  }
  DeferredChecks checks;
  const Tensor loss = zeros(context_, {1}, DType::kFloat64);
  const std::size_t count = batch.micro_batches.size();
  {
    const DeferChecksGuard defer(context_, checks);
    for (std::size_t k = 0; k < count; ++k)
      run_micro_batch(batch.micro_batches[k], batch, batch.last && k + 1 == count, loss);
  }
  const PhaseTimer timer(phases_, "reduce");
  checks.spoil(loss);
  world_.all_reduce(loss.view(), comm::ReduceOp::kSum)
      ->enqueue_wait(context_.kernel_context().stream);
  if (!pending_) pending_ = Pending{zeros(context_, {1}, DType::kFloat64), {}, false};
  add_value(pending_->loss, loss);
  pending_->checks.push_back(std::move(checks));
  pending_->summed = batch.last;
}

void ModelRun::run_micro_batch(const HostBatch& batch, const StepBatch& step, bool last,
                               const Tensor& loss_sum) {
  parallel::DataParallel& data_parallel = state_->data_parallel();
  if (batch.rows == 0) {
    data_parallel.take_part(last);
    if (last) state_->sum_partial_gradients();
    return;
  }
  Tensor loss;
  data_parallel.begin_forward(true);
  {
    const PhaseTimer timer(phases_, "forward");
    const nn::Batch tensors = to_batch(context_, batch, step.seq_len);
    loss = state_->model().loss(tensors, 1.0f / static_cast<float>(step.labels),
                                forward_options(batch));
  }
  fail_on_purpose();
  {
    const PhaseTimer timer(phases_, "backward");
    if (mesh_->leads_samples()) add_value(loss_sum, loss);
    data_parallel.begin_backward(last);
    autograd::backward(loss);
  }
  const PhaseTimer timer(phases_, "reduce");
  data_parallel.end_backward();
  if (last) state_->sum_partial_gradients();
}

void ModelRun::fail_on_purpose() const {
  const v1::DebugConfig& drill = config_.debug();
  if (drill.fail_step() != step_ + 1 || drill.fail_rank() != world_.rank()) return;
  throw InternalError(
      fmt::format("step {}: the config asks for it (run.debug.fail_step)", drill.fail_step()),
      "FAILED_ON_PURPOSE", {{"step", std::to_string(drill.fail_step())}});
}

void ModelRun::refuse(const StepResult& result, const Pending& pending) {
  for (const DeferredChecks& checks : pending.checks) checks.raise();
  const auto& parameters = state_->optimizer().parameters();
  const std::int64_t mine = state_->optimizer().first_nonfinite_gradient();
  std::array<double, 1> first = {static_cast<double>(mine < 0 ? parameters.size() : mine)};
  all_reduce(world_, first, comm::ReduceOp::kMin);
  const auto index = static_cast<std::size_t>(first[0]);
  const std::string parameter = index < parameters.size() ? parameters[index].name : "";
  const std::int64_t step = step_ + 1;
  const auto where = parameter.empty()
                         ? std::string("every gradient is finite")
                         : fmt::format("the first bad gradient is that of {}", parameter);
  throw NumericError(
      fmt::format("step {}: loss {}, gradient norm {}; {}", step, result.loss, result.norm, where),
      "NON_FINITE", {{"step", std::to_string(step)}, {"parameter", parameter}});
}

StepResult ModelRun::optim_step(double lr, double max_norm) {
  if (!pending_)
    throw FailedPrecondition("optim_step: there are no gradients; call forward_backward first");
  const Pending pending = *std::exchange(pending_, std::nullopt);
  if (!pending.summed) {
    const PhaseTimer timer(phases_, "reduce");
    state_->data_parallel().sum_gradients();
    state_->sum_partial_gradients();
  }
  const PhaseTimer timer(phases_, "optimizer");
  Optimizer& optimizer = state_->optimizer();
  optimizer.clip(max_norm);
  optimizer.step(step_ + 1, lr, pending.loss);
  const Tensor loss_and_norm = empty(context_, {2}, DType::kFloat64);
  copy_into(ops::alias(loss_and_norm, {1}, {1}), pending.loss);
  copy_into(ops::alias(loss_and_norm, {1}, {1}, 1), optimizer.norm());
  const std::vector<double> values = loss_and_norm.to_vector();
  const StepResult result{values[0], static_cast<float>(values[1])};
  if (!std::isfinite(result.loss) || !std::isfinite(result.norm)) refuse(result, pending);
  if (config_.debug().check_replicas()) check_replicas(*state_, step_ + 1);
  ++step_;
  return result;
}

LossSum ModelRun::forward(const HostBatch& batch, std::int64_t seq_len) {
  const NoGradGuard no_grad(context_);
  parallel::DataParallel& data_parallel = state_->data_parallel();
  if (batch.rows == 0) {
    data_parallel.take_part_forward();
    return {};
  }
  data_parallel.begin_forward(false);
  const nn::Batch tensors = to_batch(context_, batch, seq_len);
  const double loss = state_->model().loss(tensors, 1.0f, {}).item();
  data_parallel.end_forward();
  if (!mesh_->leads_samples()) return {};
  return {loss, static_cast<double>(batch.counted)};
}

std::unique_ptr<Sample> ModelRun::begin_sample(const std::vector<SampleStart>& sequences) {
  return begin_sample_on_mesh(*state_, sequences);
}

}  // namespace meshloom::train
