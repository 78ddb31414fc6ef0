// SPDX-License-Identifier: Apache-2.0
#include "daemon/train/run/model_run.h"

#include <array>
#include <cmath>
#include <utility>

#include "daemon/comm/agreement/rank_values.h"
#include "daemon/comm/symm_mem/tensors/symmetric_source.h"
#include "daemon/tensor/autograd/backward.h"
#include "daemon/tensor/ops/op_support.h"
#include "daemon/train/config/dtype_choice.h"
#include "daemon/train/config/resolve_plan.h"
#include "daemon/train/config/resume_check.h"
#include "daemon/train/files/model_source.h"
#include "daemon/train/run/replica_check.h"
#include "kernels/base/error.h"

namespace meshloom::train {
namespace {

ExecutionContext::Options run_context_options(const RankResources& rank, std::uint64_t seed) {
  ExecutionContext::Options options = rank.context->options();
  options.seed = seed;
  if (options.symmetric_allocator) return options;
  // What a group shares may be the host's memory while the run's tensors lie on a device.
  const std::shared_ptr<Allocator> shared = comm::make_symmetric_allocator(*rank.world);
  if (shared && shared->device() == options.device) options.symmetric_allocator = shared;
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

/// What `forward` makes, on the host after one wait for the device. Throws what its ops found wrong
/// in values.
template <typename Forward>
HostValues read_result(ExecutionContext& context, DType dtype, const Forward& forward) {
  DeferredChecks checks;
  const DeferChecksGuard defer(context, checks);
  return checks.read(forward(), dtype);
}

/// float32 losses, -log p, as log-probs.
std::vector<float> to_log_probs(const HostValues& losses) {
  std::vector<float> values;
  values.reserve(losses.as<float>().size());
  for (const float loss : losses.as<float>()) values.push_back(-loss);
  return values;
}

/// The same of losses whose checks are asked at the end of the step.
std::vector<float> to_log_probs(const Tensor& losses) {
  return to_log_probs(DeferredChecks().read(losses, DType::kFloat32));
}

}  // namespace

ModelRun::ModelRun(const RankResources& resources, const v1::RunConfig& config,
                   const nn::ModelConfig& model, std::unique_ptr<RunMesh> mesh)
    : world_(*resources.world),
      shards_(resources.shards),
      context_(run_context_options(resources, config.training().seed())),
      config_(config),
      model_config_(model),
      mesh_(std::move(mesh)),
      state_(std::make_unique<ModelState>(
          context_, model_config_,
          ModelStateOptions{.optimizer = make_optimizer_settings(config_.optimizer()),
                            .training = config_.training(),
                            .plan = make_plan(config_)},
          *mesh_)) {
  std::vector<std::string> names;
  for (const nn::NamedParameter& p : state_->optimizer().parameters()) names.push_back(p.name);
  state_->reserve_workspace(fused_workspace_of(config_, model_config_));
  block_checkpoints_ = planner::block_checkpoints(make_plan(config_), names);
}

ComputeClass ModelRun::compute_class() const {
  const bool data_parallel = config_.mesh().dp() == world_.size();
  const char* sequence = config_.plan().sequence_parallel() ? " with sequence_parallel" : "";
  const kernels::ComputeDescription compute = context_.backend().describe();
  return {compute.compute_class,
          compute.table_version,
          context_.threads().count,
          world_.size(),
          data_parallel ? std::string() : to_string(*mesh_->layout()) + sequence,
          world_.hosts()};
}

void ModelRun::initialize(const std::filesystem::path& data_dir,
                          const std::filesystem::path& model_folder, base::Disk& disk,
                          std::vector<std::string>* notes) {
  const std::uint64_t seed = config_.training().seed();
  const auto weights = weights_folder(config_.model(), data_dir, model_folder, disk);
  if (weights.empty()) return state_->initialize(seed);
  std::string note = state_->load_hf(weights, seed, disk);
  if (!note.empty()) notes->push_back(std::move(note));
}

void ModelRun::load_state(const CheckpointReader& checkpoint, bool with_optimizer) {
  state_->load(checkpoint, with_optimizer);
  step_ = with_optimizer ? checkpoint.manifest().step : 0;
  drop_gradients();
}

void ModelRun::describe(Manifest& manifest) const {
  manifest.step = step_;
  manifest.seed = config_.training().seed();
  manifest.compute = compute_class();
  manifest.model_config = nn::to_hf_config(model_config_);
  if (manifest.run_config.empty()) manifest.run_config = to_json_text(config_);
}

std::filesystem::path ModelRun::save_state(const CheckpointLocation& location, Manifest manifest,
                                           const std::vector<CarriedFile>& carried) {
  describe(manifest);
  const auto state = state_->state();
  return write_checkpoint(world_, location, std::move(manifest), state, carried);
}

void ModelRun::save_state_at(const std::filesystem::path& folder, Manifest manifest,
                             const std::vector<CarriedFile>& carried) {
  describe(manifest);
  const auto state = state_->state();
  write_checkpoint_at(world_, folder, posix_file_system(), std::move(manifest), state, carried,
                      shards_);
}

nn::ForwardOptions ModelRun::forward_options(std::int64_t first_sample, bool dropout) const {
  nn::ForwardOptions options;
  options.training = dropout;
  // Dropout is drawn by (step, sample inside the global batch), so it does not depend on how a
  // batch is split.
  options.dropout_step = static_cast<std::uint64_t>(step_);
  options.first_sample = static_cast<std::uint64_t>(first_sample);
  options.block_checkpoints = block_checkpoints_;
  return options;
}

LogProbs ModelRun::forward_backward(const BatchCall& call) {
  if (pending_ && pending_->summed)
    throw FailedPrecondition(
        "forward_backward: the gradients of the step before were not used yet; call optim_step");
  if (!pending_) {
    state_->optimizer().zero_grad();
    state_->data_parallel().begin_step();
  }
  LogProbs log_probs(call.micro_batches.size());
  DeferredChecks checks;
  const Tensor loss = zeros(context_, {1}, DType::kFloat64);
  {
    const DeferChecksGuard defer(context_, checks);
    for (std::size_t k = 0; k < log_probs.size(); ++k) {
      if (call.before) call.before(k);
      run_micro_batch(call, k, loss, log_probs[k]);
    }
  }
  const PhaseTimer timer(phases_, "reduce");
  checks.spoil(loss);
  world_.all_reduce(loss.view(), comm::ReduceOp::kSum)
      ->enqueue_wait(context_.kernel_context().stream);
  if (!pending_) pending_ = Pending{zeros(context_, {1}, DType::kFloat64), {}, false};
  add_value(pending_->loss, loss);
  pending_->summed = call.last;
  if (!call.log_probs) pending_->checks.push_back(std::move(checks));
  return log_probs;
}

void ModelRun::run_micro_batch(const BatchCall& call, std::size_t k, const Tensor& loss,
                               std::vector<float>& log_probs) {
  const TokenBatch& batch = call.micro_batches[k];
  const bool last = call.last && k + 1 == call.micro_batches.size();
  parallel::DataParallel& data_parallel = state_->data_parallel();
  if (batch.rows == 0) {
    data_parallel.take_part(last);
    if (last) state_->sum_partial_gradients();
    return;
  }
  ForwardResult result;
  data_parallel.begin_forward(true);
  {
    const PhaseTimer timer(phases_, "forward");
    result = forward_micro_batch(call, batch, loss, log_probs);
  }
  // A drill (run.debug) fails here.
  const v1::DebugConfig& drill = config_.debug();
  if (drill.fail_step() == step_ + 1 && drill.fail_rank() == world_.rank())
    throw InternalError(
        fmt::format("step {}: the config asks for it (run.debug.fail_step)", drill.fail_step()),
        "FAILED_ON_PURPOSE", {{"step", std::to_string(drill.fail_step())}});
  {
    const PhaseTimer timer(phases_, "backward");
    data_parallel.begin_backward(last);
    autograd::backward(std::span(&result.output, 1),
                       std::span(&result.gradient, result.gradient ? 1 : 0));
  }
  const PhaseTimer timer(phases_, "reduce");
  data_parallel.end_backward();
  if (last) state_->sum_partial_gradients();
}

ModelRun::ForwardResult ModelRun::forward_micro_batch(const BatchCall& call,
                                                      const TokenBatch& batch, const Tensor& loss,
                                                      std::vector<float>& log_probs) {
  const nn::Batch tensors = state_->place(batch);
  const nn::ForwardOptions options = forward_options(batch.first_sample, call.dropout);
  nn::Model& model = state_->model();
  const auto add_share = [&](const Tensor& share) {
    if (mesh_->leads_samples()) add_value(loss, share);
  };
  if (!call.log_probs) {
    Tensor sum = model.loss(tensors, call.scale, options);
    add_share(sum);
    return {std::move(sum), {}};
  }
  if (!call.loss) {
    ops::WeightedLoss result = model.weighted_loss(tensors, call.scale, options);
    add_share(result.sum);
    log_probs = to_log_probs(result.losses);
    return {std::move(result.sum), {}};
  }
  Tensor losses = model.token_losses(tensors, options);
  log_probs = to_log_probs(losses);
  LossOfLogProbs result = call.loss(batch, log_probs);
  // The op gives losses, -log p.
  for (float& gradient : result.gradients) gradient *= -call.scale;
  if (mesh_->leads_samples())
    add_value(loss, full(context_, {1}, result.loss * call.scale, DType::kFloat64));
  return {losses, from_values(context_, losses.shape(), std::span<const float>(result.gradients))};
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
      "NON_FINITE",
      {{"step", std::to_string(step)},
       {"parameter", parameter},
       {"loss", fmt::format("{}", result.loss)},
       {"grad_norm", fmt::format("{}", result.norm)}});
}

StepResult ModelRun::optim_step(double lr, double max_norm, double factor) {
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
  if (factor != 1.0) {
    optimizer.scale_gradients(factor);
    context_.backend().unary(context_.kernel_context(), kernels::UnaryOp::kMul, pending.loss.view(),
                             pending.loss.view(), factor);
  }
  optimizer.clip(max_norm);
  optimizer.step(step_ + 1, lr, pending.loss);
  const Tensor loss_and_norm = empty(context_, {2}, DType::kFloat64);
  copy_into(ops::alias(loss_and_norm, {1}, {1}), pending.loss);
  copy_into(ops::alias(loss_and_norm, {1}, {1}, 1), optimizer.norm());
  const std::vector<double> values = loss_and_norm.to_vector();
  phases_.seconds();  // the device has just come to the end of all of them
  const StepResult result{values[0], static_cast<float>(values[1])};
  if (!std::isfinite(result.loss) || !std::isfinite(result.norm)) refuse(result, pending);
  if (config_.debug().check_replicas()) check_replicas(*state_, step_ + 1);
  ++step_;
  return result;
}

ForwardResults ModelRun::forward(const BatchCall& call) {
  const NoGradGuard no_grad(context_);
  parallel::DataParallel& data_parallel = state_->data_parallel();
  ForwardResults results{LogProbs(call.micro_batches.size()), 0.0};
  DeferredChecks checks;
  const Tensor loss = zeros(context_, {1}, DType::kFloat64);
  for (std::size_t k = 0; k < call.micro_batches.size(); ++k) {
    const TokenBatch& batch = call.micro_batches[k];
    if (call.before) call.before(k);
    if (batch.rows == 0) {
      data_parallel.take_part_forward();
      continue;
    }
    data_parallel.begin_forward(false);
    const nn::ForwardOptions options = forward_options(batch.first_sample, call.dropout);
    if (call.log_probs) {
      results.log_probs[k] = to_log_probs(read_result(context_, DType::kFloat32, [&] {
        return state_->model().token_losses(state_->place(batch), options);
      }));
    } else {
      const DeferChecksGuard defer(context_, checks);
      add_value(loss, state_->model().loss(state_->place(batch), call.scale, options));
    }
    data_parallel.end_forward();
  }
  if (call.log_probs) return results;
  // Ranks that share samples have the same sum, which counts once.
  const HostValues sum = checks.read(loss, DType::kFloat64);
  if (mesh_->leads_samples()) results.loss = sum.as<double>().front();
  return results;
}

}  // namespace meshloom::train
