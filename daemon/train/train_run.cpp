// SPDX-License-Identifier: Apache-2.0
#include "daemon/train/train_run.h"

#include <sys/resource.h>

#include <array>
#include <cmath>

#include "daemon/tensor/autograd/backward.h"
#include "daemon/tensor/autograd/leaf_grad.h"
#include "daemon/train/checkpoint/checkpoint_writer.h"
#include "daemon/train/data/data_identity.h"
#include "daemon/train/dtype_choice.h"
#include "daemon/train/generation.h"
#include "daemon/train/model_source.h"
#include "daemon/train/paths.h"
#include "daemon/train/replica_check.h"
#include "daemon/train/resolve_plan.h"
#include "daemon/train/resume_check.h"
#include "daemon/train/status_agreement.h"
#include "kernels/base/error.h"
#include "kernels/cpu/cpu_features.h"
#include "kernels/cpu/matmul_table.h"

namespace meshloom::train {
namespace {

namespace fs = std::filesystem;
using Clock = std::chrono::steady_clock;

ExecutionContext::Options run_context_options(const ExecutionContext& rank, std::uint64_t seed) {
  ExecutionContext::Options options;
  options.device = rank.device();
  options.threads = rank.threads();
  options.seed = seed;
  options.allocator = rank.allocator().shared_from_this();
  options.backend = &rank.backend();
  return options;
}

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

/// In place over all ranks.
void all_reduce(comm::ProcessGroup& group, std::span<double> values, comm::ReduceOp op) {
  if (group.size() == 1) return;
  const Shape shape = {static_cast<std::int64_t>(values.size())};
  group.all_reduce(make_view(values.data(), DType::kFloat64, shape), op)->wait_host();
}

std::int64_t peak_resident_bytes() {
  struct rusage usage {};
  ::getrusage(RUSAGE_SELF, &usage);
  return static_cast<std::int64_t>(usage.ru_maxrss) * 1024;
}

ModelStateOptions model_state_options(const v1::RunConfig& config) {
  ModelStateOptions options;
  options.dtype = dtype_of(config.plan());
  options.optimizer = make_optimizer_settings(config.optimizer());
  options.plan = config.plan();
  return options;
}

std::string mesh_text(const ComputeClass& compute) {
  return compute.mesh.empty() ? fmt::format("dp={}", compute.world_size) : compute.mesh;
}

}  // namespace

TrainRun::TrainRun(const RankResources& resources, const v1::RunConfig& config,
                   const RunOptions& options)
    : world_(*resources.world),
      context_(run_context_options(*resources.context, config.training().seed())),
      config_(config),
      options_(options),
      schedule_(make_lr_schedule(config.lr_scheduler(), config.training().steps())) {
  check_same_text(world_, "the resolved config", to_json_text(config_));
  mesh_ = std::make_unique<RunMesh>(world_, mesh_layout(config_.mesh()));
  run_agreed(world_, [&] {
    model_config_ = load_model_config(config_.model(), options_.data_dir);
    const RunData data = open_run_data(config_, model_config_, options_.data_dir);
    data_identity_ = data.identity;
    const v1::TrainingConfig& training = config_.training();
    const BatchPlan plan = {training.global_batch_size(), training.micro_batch_size(),
                            mesh_->data().size()};
    training_ = std::make_unique<BatchLoader>(data.training, plan, training.seed(), true);
    if (data.validation->size() > 0)
      validation_ = std::make_unique<BatchLoader>(data.validation, plan, 0, true);
    state_ =
        std::make_unique<ModelState>(context_, model_config_, model_state_options(config_), *mesh_);
    std::vector<std::string> names;
    for (const nn::NamedParameter& p : state_->optimizer().parameters()) names.push_back(p.name);
    block_checkpoints_ = make_block_checkpoints(config_.plan(), names);
  });
  restore_or_initialize();
  for (const std::string& warning : state_->warnings())
    notes_.push_back(fmt::format("run.plan.styles: {}", warning));
  counted_ = mesh_->counters();
}

TrainRun::~TrainRun() = default;

CheckpointLocation TrainRun::checkpoint_location() const {
  return {options_.checkpoint_dir, config_.checkpoint().keep_latest_k(), options_.file_system};
}

void TrainRun::restore_or_initialize() {
  std::optional<FoundCheckpoint> found;
  if (!options_.checkpoint_dir.empty()) {
    run_agreed(world_, [&] {
      if (world_.rank() == 0) remove_leftovers(checkpoint_location());
    });
    found = find_checkpoint(world_, checkpoint_location(),
                            options_.allow_fallback || config_.checkpoint().fallback());
  }
  const bool own = found.has_value();
  if (!own && !options_.resume_from.empty()) {
    found = options_.resume_older ? open_checkpoint_or_older(world_, options_.resume_from)
                                  : open_checkpoint(world_, options_.resume_from);
    if (found->folder == options_.resume_from)
      found->notes.push_back(fmt::format("begins with {}", config_.checkpoint().resume_from()));
  }
  run_agreed(world_, [&] {
    check_data(found ? &*found : nullptr);
    if (found) {
      resume(*found);
      if (own) saved_step_ = progress_.step;
    } else if (!config_.model().hf_folder().empty()) {
      state_->load_hf(
          resolve_path(config_.model().hf_folder(), options_.data_dir, "run.model.hf_folder"));
    } else {
      state_->initialize(config_.training().seed());
    }
  });
}

void TrainRun::resume(const FoundCheckpoint& found) {
  const Manifest& manifest = found.manifest;
  check_resumable(manifest, config_, model_config_, found.folder.string());
  state_->load(CheckpointReader(found.folder, manifest));
  state_->optimizer().set_step_count(manifest.step);
  progress_ = {manifest.step, manifest.data_position, manifest.tokens};
  notes_.insert(notes_.end(), found.notes.begin(), found.notes.end());
  if (manifest.seed != config_.training().seed())
    notes_.push_back(fmt::format("the checkpoint was trained with seed {}, going on with seed {}",
                                 manifest.seed, config_.training().seed()));
  note_other_class(manifest.compute);
}

void TrainRun::check_data(const FoundCheckpoint* found) {
  v1::DataIdentity before = config_.data().identity();
  std::string whose = "the job's submission";
  if (found && !found->manifest.data_identity.empty()) {
    before = data_identity_from_json(found->manifest.data_identity);
    whose = fmt::format("checkpoint {}", found->folder.filename().string());
  } else if (found) {
    notes_.push_back(
        fmt::format("checkpoint {} does not say which data it was trained on: that they are the "
                    "same was not checked",
                    found->folder.filename().string()));
  }
  if (before.digest().empty()) return;
  const std::string note =
      check_same_data(before, data_identity_, config_.data().allow_changed(), whose);
  if (!note.empty()) notes_.push_back(note);
}

void TrainRun::note_other_class(const ComputeClass& before) {
  const ComputeClass now = compute_class();
  if (before == now) return;
  notes_.push_back(fmt::format(
      "the checkpoint was written by {} ranks ({}) with {} threads on CPU class {} (matmul table "
      "{}), this run has {} ranks ({}) with {} threads on {} (table {}): results will agree within "
      "rounding, not bit for bit",
      before.world_size, mesh_text(before), before.threads, before.cpu_class, before.matmul_table,
      now.world_size, mesh_text(now), now.threads, now.cpu_class, now.matmul_table));
}

ComputeClass TrainRun::compute_class() const {
  const bool data_parallel = config_.mesh().dp() == world_.size();
  const char* sequence = config_.plan().sequence_parallel() ? " with sequence_parallel" : "";
  return {kernels::cpu::cpu_class_name(kernels::cpu::cpu_class()),
          std::to_string(kernels::cpu::kMatmulTableVersion), context_.threads().count,
          world_.size(), data_parallel ? std::string() : to_string(*mesh_->layout()) + sequence};
}

std::vector<HostBatch> TrainRun::load_step(std::int64_t& global_labels) {
  const PhaseTimer timer(phases_, "data");
  std::vector<HostBatch> batches;
  std::exception_ptr error;
  try {
    batches = training_->load(progress_.data_position, mesh_->data().rank());
  } catch (...) {
    error = std::current_exception();
  }
  // One small exchange carries the count of labels and whether a rank's data were bad.
  std::array<double, 2> sums = {0.0, error ? 1.0 : 0.0};
  if (mesh_->leads_samples())
    for (const HostBatch& batch : batches) sums[0] += static_cast<double>(batch.counted);
  all_reduce(world_, sums, comm::ReduceOp::kSum);
  if (sums[1] > 0.0) agree(world_, error);
  global_labels = static_cast<std::int64_t>(sums[0]);
  if (global_labels == 0)
    throw InvalidArgument(fmt::format(
        "data: the global batch at sample {} has no label that counts", progress_.data_position));
  return batches;
}

nn::ForwardOptions TrainRun::forward_options(const HostBatch& batch) const {
  nn::ForwardOptions options;
  options.training = true;
  // Dropout is drawn by (step, sample inside the global batch), so it does not depend on how a
  // batch is cut up.
  options.dropout_step = static_cast<std::uint64_t>(progress_.step);
  options.first_sample = static_cast<std::uint64_t>(batch.first_sample);
  options.block_checkpoints = block_checkpoints_;
  return options;
}

void TrainRun::run_micro_batch(const HostBatch& batch, std::int64_t global_labels, bool last) {
  parallel::DataParallel& data_parallel = state_->data_parallel();
  if (batch.rows == 0) return data_parallel.take_part(last);
  Tensor loss;
  data_parallel.begin_forward(true);
  {
    const PhaseTimer timer(phases_, "forward");
    const nn::Batch tensors = to_batch(context_, batch, config_.training().seq_len());
    loss = state_->model().loss(tensors, 1.0f / static_cast<float>(global_labels),
                                forward_options(batch));
  }
  fail_on_purpose();
  {
    const PhaseTimer timer(phases_, "backward");
    if (mesh_->leads_samples()) local_loss_ += loss.item();
    data_parallel.begin_backward(last);
    autograd::backward(loss);
  }
  const PhaseTimer timer(phases_, "reduce");
  data_parallel.end_backward();
}

void TrainRun::fail_on_purpose() const {
  const v1::DebugConfig& drill = config_.debug();
  if (drill.fail_step() != progress_.step + 1 || drill.fail_rank() != world_.rank()) return;
  throw InternalError(
      fmt::format("step {}: the config asks for it (run.debug.fail_step)", drill.fail_step()),
      "FAILED_ON_PURPOSE", {{"step", std::to_string(drill.fail_step())}});
}

void TrainRun::forward_backward() {
  if (pending_)
    throw FailedPrecondition(
        "forward_backward: the gradients of the step before were not used yet; call optim_step");
  phases_.clear();
  PendingStep pending;
  pending.start = Clock::now();
  const std::vector<HostBatch> batches = load_step(pending.labels);
  parallel::DataParallel& data_parallel = state_->data_parallel();
  state_->optimizer().zero_grad();
  data_parallel.begin_step();
  local_loss_ = 0.0;
  for (std::size_t k = 0; k < batches.size(); ++k)
    run_micro_batch(batches[k], pending.labels, k + 1 == batches.size());
  const PhaseTimer timer(phases_, "reduce");
  std::array<double, 1> loss = {local_loss_};
  all_reduce(world_, loss, comm::ReduceOp::kSum);
  pending.loss = loss[0];
  pending_ = pending;
}

void TrainRun::refuse_nonfinite(const PendingStep& pending, float norm) {
  if (std::isfinite(pending.loss) && std::isfinite(norm)) return;
  const auto& parameters = state_->optimizer().parameters();
  const std::int64_t mine = state_->optimizer().first_nonfinite_gradient();
  std::array<double, 1> first = {static_cast<double>(mine < 0 ? parameters.size() : mine)};
  all_reduce(world_, first, comm::ReduceOp::kMin);
  const auto index = static_cast<std::size_t>(first[0]);
  const std::string parameter = index < parameters.size() ? parameters[index].name : "";
  const std::int64_t step = progress_.step + 1;
  const auto where = parameter.empty()
                         ? std::string("every gradient is finite")
                         : fmt::format("the first bad gradient is that of {}", parameter);
  throw NumericError(
      fmt::format("step {}: loss {}, gradient norm {}; {}", step, pending.loss, norm, where),
      "NON_FINITE", {{"step", std::to_string(step)}, {"parameter", parameter}});
}

v1::StepMetrics TrainRun::optim_step() {
  if (!pending_)
    throw FailedPrecondition("optim_step: there are no gradients; call forward_backward first");
  const PendingStep pending = *pending_;
  pending_.reset();
  v1::StepMetrics metrics;
  {
    const PhaseTimer timer(phases_, "optimizer");
    Optimizer& optimizer = state_->optimizer();
    const float norm = optimizer.clip_and_norm(config_.training().max_norm());
    refuse_nonfinite(pending, norm);
    const double lr = config_.optimizer().lr() * schedule_.factor(progress_.step);
    optimizer.step(lr);
    if (config_.debug().check_replicas()) check_replicas(*state_, progress_.step + 1);
    metrics.set_grad_norm(norm);
    metrics.set_lr(lr);
  }
  ++progress_.step;
  progress_.data_position += config_.training().global_batch_size();
  progress_.tokens += pending.labels;
  metrics.set_step(progress_.step);
  metrics.set_loss(pending.loss);
  metrics.set_tokens(progress_.tokens);
  std::array<double, 2> most = {seconds_since(pending.start),
                                static_cast<double>(peak_resident_bytes())};
  all_reduce(world_, most, comm::ReduceOp::kMax);
  metrics.set_tokens_per_second(static_cast<double>(pending.labels) / most[0]);
  metrics.set_memory_bytes(static_cast<std::int64_t>(most[1]));
  if (const double peak = config_.training().peak_flops() * world_.size(); peak > 0.0) {
    const v1::TrainingConfig& t = config_.training();
    const auto positions = static_cast<double>(t.global_batch_size() * t.seq_len());
    metrics.set_mfu(positions * nn::flops_per_token(model_config_, t.seq_len()) / (most[0] * peak));
  }
  add_collectives(metrics);
  return metrics;
}

void TrainRun::add_collectives(v1::StepMetrics& metrics) {
  GroupCounters now = mesh_->counters();
  for (const auto& [key, counter] : now) {
    const comm::CommCounter before = counted_[key];
    if (counter.calls == before.calls) continue;
    v1::CollectiveMetrics& item = *metrics.add_collectives();
    item.set_group(key.first);
    item.set_collective(key.second);
    item.set_calls(static_cast<std::int64_t>(counter.calls - before.calls));
    item.set_bytes_sent(static_cast<std::int64_t>(counter.bytes_sent - before.bytes_sent));
  }
  counted_ = std::move(now);
}

std::string TrainRun::plan_text() const { return state_->description(); }

std::vector<LossSum> TrainRun::evaluate(std::int64_t first, std::int64_t batches) {
  if (!validation_) throw FailedPrecondition("evaluate: there are no validation data");
  const std::int64_t size = validation_->plan().global_batch_size;
  const std::int64_t end = std::min((first + batches) * size, validation_->dataset().size());
  const NoGradGuard no_grad(context_);
  std::vector<LossSum> sums;
  for (std::int64_t at = first * size; at < end; at += size) {
    std::vector<HostBatch> parts;
    run_agreed(world_, [&] {
      parts = validation_->load(at, mesh_->data().rank(), std::min(size, end - at));
    });
    LossSum& sum = sums.emplace_back();
    for (const HostBatch& part : parts) {
      const double loss = evaluate_batch(part);
      if (!mesh_->leads_samples()) continue;
      sum.loss += loss;
      sum.labels += static_cast<double>(part.counted);
    }
  }
  if (sums.empty()) return sums;  // the data have ended, on all ranks alike
  static_assert(sizeof(LossSum) == 2 * sizeof(double));
  all_reduce(world_, std::span(&sums.data()->loss, 2 * sums.size()), comm::ReduceOp::kSum);
  return sums;
}

double TrainRun::evaluate_batch(const HostBatch& batch) {
  parallel::DataParallel& data_parallel = state_->data_parallel();
  if (batch.rows == 0) {
    data_parallel.take_part_forward();
    return 0.0;
  }
  data_parallel.begin_forward(false);
  const nn::Batch tensors = to_batch(context_, batch, config_.training().seq_len());
  const double loss = state_->model().loss(tensors, 1.0f, {}).item();
  data_parallel.end_forward();
  return loss;
}

fs::path TrainRun::save_state() {
  if (options_.checkpoint_dir.empty())
    throw FailedPrecondition("save_state: this run has no checkpoint folder");
  const PhaseTimer timer(phases_, "checkpoint");
  if (saved_step_ == progress_.step)
    return options_.checkpoint_dir / fmt::format("step-{}", saved_step_);
  Manifest manifest;
  manifest.step = progress_.step;
  manifest.data_position = progress_.data_position;
  manifest.tokens = progress_.tokens;
  manifest.seed = config_.training().seed();
  manifest.compute = compute_class();
  manifest.model_config = nn::to_hf_config(model_config_);
  manifest.run_config = to_json_text(config_);
  manifest.data_identity = to_json_text(data_identity_);
  const auto state = state_->state();
  const fs::path folder =
      write_checkpoint(world_, checkpoint_location(), std::move(manifest), state);
  saved_step_ = progress_.step;
  return folder;
}

void TrainRun::export_hf(const fs::path& folder, const std::string& dtype) {
  const auto wanted = dtype_from_name(dtype);
  check(wanted == DType::kFloat32 || wanted == DType::kBFloat16 || wanted == DType::kFloat16,
        "export: dtype must be float32, bfloat16 or float16, got \"{}\"", dtype);
  state_->export_hf(folder, *wanted);
}

std::unique_ptr<Sample> TrainRun::begin_sample(const std::vector<SampleStart>& sequences) {
  return begin_sample_on_mesh(*state_, sequences);
}

}  // namespace meshloom::train
