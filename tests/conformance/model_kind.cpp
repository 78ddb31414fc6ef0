// SPDX-License-Identifier: Apache-2.0
#include "tests/conformance/model_kind.h"

#include "daemon/comm/agreement/status_agreement.h"
#include "daemon/tensor/autograd/backward.h"
#include "daemon/train/files/hf_folder.h"
#include "daemon/train/run/model_state.h"
#include "kernels/base/error.h"
#include "tests/conformance/model_plan.h"
#include "tests/conformance/spec_tensors.h"

namespace meshloom::conformance {
namespace {

constexpr const char* kBatchInputs[] = {"input_ids",      "labels",       "attention_mask",
                                        "token_type_ids", "position_ids", "document_ids"};

std::filesystem::path model_folder(const Case& c) {
  return c.file.parent_path() / ObjectReader(c.keys, "case").string("model_dir");
}

bool labels_shifted(const Case& c) {
  return ObjectReader(c.keys, "case").boolean_or("labels_shifted", false);
}

void validate(const Case& c, const TensorFile& file) {
  train::HfFolder::open(model_folder(c));
  read_model_plan(c);
  read_optimizer_plan(c);
  labels_shifted(c);
  const Shape shape = file.shape("in.input_ids");
  check(shape.size() == 2, "in.input_ids has shape {}, expected [B, S]", to_string(shape));
  file.shape("in.labels");
  for (const char* input : kBatchInputs) {
    const std::string name = std::string("in.") + input;
    if (!file.has(name)) continue;
    check(file.dtype(name) == DType::kInt64, "{} is {}, expected int64", name,
          dtype_name(file.dtype(name)));
    check(file.shape(name) == shape, "{} has shape {}, expected in.input_ids' {}", name,
          to_string(file.shape(name)), to_string(shape));
  }
}

/// The batch is sharded over the mesh dims whose ranks have samples of their own.
planner::Placements rows_of(const planner::MeshLayout& mesh) {
  planner::Placements placements;
  for (const planner::MeshDim& dim : mesh.dims())
    placements.push_back(dim.name == "dp" || dim.name == "fsdp" ? planner::Placement::shard(0)
                                                                : planner::Placement::replicate());
  return placements;
}

train::ModelStateOptions state_options(const planner::ParallelPlan& plan,
                                       const std::optional<OptimizerPlan>& optimizer) {
  train::ModelStateOptions options;
  if (optimizer) options.optimizer = optimizer->settings;
  options.plan = plan;
  return options;
}

/// Training on the case's batch, step by step, with the parts that a job is made of.
class ModelRun {
 public:
  ModelRun(const Case& c, const TensorFile& file, RankContext& rank, CaseResults& results)
      : file_(file),
        rank_(rank),
        results_(results),
        plan_(read_model_plan(c, rank.fusion)),
        optimizer_plan_(read_optimizer_plan(c)),
        by_rows_(rows_of(c.mesh)),
        folder_(model_folder(c)),
        mesh_(rank.world, c.mesh),
        state_(rank.context, train::HfFolder::open(folder_).config(),
               state_options(plan_, optimizer_plan_), mesh_),
        data_parallel_(state_.data_parallel()) {
    comm::run_agreed(rank.world, [&] { load(c); });
    forward_.activation_checkpoint = plan_.checkpointing;
  }

  void run() {
    store_logits();
    const std::int64_t steps = optimizer_plan_ ? optimizer_plan_->steps : 1;
    std::vector<double> losses, norms;
    for (std::int64_t step = 0; step < steps; ++step) {
      state_.optimizer().zero_grad();
      losses.push_back(forward_backward(step == 0));
      if (step == 0) store_gradients();
      if (!optimizer_plan_) break;
      train::Optimizer& optimizer = state_.optimizer();
      optimizer.clip(optimizer_plan_->max_norm);
      optimizer.step(step + 1, optimizer_plan_->lr);
      norms.push_back(optimizer.norm().item());
    }
    store("out.loss", {}, std::span(losses).first(1));
    if (!optimizer_plan_) return;
    store("out.losses", {steps}, losses);
    store("out.grad_norms", {steps}, norms);
    store_parameters();
  }

 private:
  void load(const Case& c) {
    state_.load_hf(folder_, 0);
    Tensor* const members[] = {&batch_.input_ids,      &batch_.labels,       &batch_.attention_mask,
                               &batch_.token_type_ids, &batch_.position_ids, &batch_.document_ids};
    for (std::size_t i = 0; i < std::size(members); ++i) {
      const std::string name = std::string("in.") + kBatchInputs[i];
      if (file_.has(name))
        *members[i] =
            scatter_global(file_.load(rank_.context, name), spec_of(file_.shape(name)), rank_);
    }
    const bool causal = state_.model().config().architecture != nn::Architecture::kBert;
    batch_.labels_shifted = !causal || labels_shifted(c);
    counted_ = count_labels(file_.load(rank_.context, "in.labels").to_vector(),
                            file_.shape("in.labels").back());
    check(counted_ > 0, "in.labels: no label counts");
  }

  /// Labels of the global batch that the loss is the mean of.
  std::int64_t count_labels(const std::vector<double>& labels, std::int64_t sequence) const {
    std::int64_t count = 0;
    for (std::size_t i = 0; i < labels.size(); ++i) {
      const bool first = static_cast<std::int64_t>(i) % sequence == 0;
      if (labels[i] != -100.0 && (batch_.labels_shifted || !first)) ++count;
    }
    return count;
  }

  planner::DTensorSpec spec_of(const Shape& shape) const {
    return {std::make_shared<const planner::MeshLayout>(rank_.mesh), by_rows_, shape};
  }

  bool has_rows() const { return batch_.input_ids.size(0) > 0; }

  void store_logits() {
    const Shape ids = file_.shape("in.input_ids");
    const std::int64_t vocabulary = state_.model().config().vocab_size;
    Tensor local = empty(rank_.context, {0, ids[1], vocabulary}, plan_.dtype);
    comm::run_agreed(rank_.world, [&] {
      const NoGradGuard no_grad(rank_.context);
      if (!has_rows()) return data_parallel_.take_part_forward();
      data_parallel_.begin_forward(false);
      local = state_.model().logits(batch_, forward_);
      data_parallel_.end_forward();
    });
    results_.local_shapes["logits"] = local.shape();
    results_.placements["logits"] = by_rows_;
    results_.tensors["out.logits"] =
        gather_global(local, spec_of({ids[0], ids[1], vocabulary}), rank_);
  }

  /// The global loss; gradients are the global ones afterwards.
  double forward_backward(bool count) {
    data_parallel_.begin_step();
    Counters before = counters();
    double loss = 0.0;
    comm::run_agreed(rank_.world, [&] {
      if (!has_rows()) {
        data_parallel_.take_part(true);
        return state_.sum_partial_gradients();
      }
      data_parallel_.begin_forward(true);
      const Tensor sum = state_.model().loss(batch_, 1.0f / static_cast<float>(counted_), forward_);
      if (count) before = count_communication("forward", before);
      loss = sum.item();
      data_parallel_.begin_backward(true);
      autograd::backward(sum);
      data_parallel_.end_backward();
      state_.sum_partial_gradients();
      if (count) count_communication("backward", before);
    });
    mesh_.data()
        .all_reduce(make_view(&loss, DType::kFloat64, {1}), comm::ReduceOp::kSum)
        ->wait_host();
    return loss;
  }

  using Counters = std::map<std::string, comm::CommCounter>;
  /// By collective, over all groups.
  Counters counters() const {
    Counters sums;
    for (const auto& [group_and_name, counter] : mesh_.counters()) {
      comm::CommCounter& sum = sums[group_and_name.second];
      sum.calls += counter.calls;
      sum.bytes_sent += counter.bytes_sent;
    }
    return sums;
  }
  /// What happened since `before`; returns the counters now.
  Counters count_communication(const char* phase, const Counters& before) {
    const Counters after = counters();
    CommCounts& counts = results_.comm[phase];
    std::int64_t& bytes = results_.bytes_sent[phase];
    for (const auto& [name, now] : after) {
      const auto found = before.find(name);
      const comm::CommCounter then = found == before.end() ? comm::CommCounter{} : found->second;
      if (now.calls > then.calls) counts[name] = static_cast<std::int64_t>(now.calls - then.calls);
      bytes += static_cast<std::int64_t>(now.bytes_sent - then.bytes_sent);
    }
    return after;
  }

  /// Only rank 0's are compared: it alone gets them.
  void store_whole(const std::string& name, const Tensor& part, std::size_t i) {
    if (const Tensor whole = state_.gather(part, i)) results_.tensors[name] = whole;
  }

  void store_gradients() {
    const auto& parameters = state_.optimizer().parameters();
    for (std::size_t i = 0; i < parameters.size(); ++i) {
      const Tensor& value = parameters[i].parameter->value;
      const Tensor copy = zeros(rank_.context, value.shape(), DType::kFloat32);
      if (const Tensor grad = value.grad()) copy_into(copy, grad);
      store_whole("grad.param." + parameters[i].name, copy, i);
    }
  }

  void store_parameters() {
    const auto& parameters = state_.optimizer().parameters();
    for (std::size_t i = 0; i < parameters.size(); ++i)
      store_whole("param_after." + parameters[i].name, state_.optimizer().master(i).detach(), i);
  }

  void store(const std::string& name, const Shape& shape, std::span<const double> values) {
    results_.tensors[name] = from_values(rank_.context, shape, values, DType::kFloat32);
  }

  const TensorFile& file_;
  RankContext& rank_;
  CaseResults& results_;
  planner::ParallelPlan plan_;
  std::optional<OptimizerPlan> optimizer_plan_;
  planner::Placements by_rows_;
  std::filesystem::path folder_;
  train::RunMesh mesh_;
  train::ModelState state_;
  parallel::DataParallel& data_parallel_;
  nn::ForwardOptions forward_;
  nn::Batch batch_;
  std::int64_t counted_ = 0;
};

void run(const Case& c, const TensorFile& file, RankContext& rank, CaseResults& results) {
  ModelRun(c, file, rank, results).run();
}

}  // namespace

const Kind& model_kind() {
  static const Kind kind{
      "model", {"model_dir", "plan", "optimizer", "labels_shifted"}, validate, run};
  return kind;
}

}  // namespace meshloom::conformance
