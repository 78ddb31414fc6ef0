// SPDX-License-Identifier: Apache-2.0
#include "daemon/parallel/parallelize_model.h"

#include <algorithm>

#include "daemon/dtensor/api/from_local.h"
#include "daemon/dtensor/api/to_local.h"
#include "daemon/nn/models/default_styles.h"
#include "daemon/parallel/context_parallel/batch_order.h"
#include "daemon/parallel/context_parallel/context_attention.h"
#include "daemon/parallel/tensor_parallel/fused_products.h"
#include "daemon/parallel/tensor_parallel/parallelize_module.h"
#include "kernels/base/error.h"

namespace meshloom::parallel {
namespace {

using planner::Placement;
using planner::Placements;

/// The mesh dim of this name, if it has more than one rank.
std::optional<int> wide_dim(const planner::MeshLayout& mesh, const char* name) {
  const auto dim = mesh.find_dim(name);
  return dim && mesh.size_of(name) > 1 ? dim : std::nullopt;
}

}  // namespace

struct ParallelModel::Impl {
  Impl(dtensor::DeviceMesh& device_mesh, const nn::ModelConfig& config,
       const planner::ContextParallelPlan& plan)
      : engine({device_mesh, plans}),
        mesh(device_mesh.layout()->find_dim("tp") ? StyleMesh(engine, "tp") : StyleMesh(engine)),
        sequence(wide_dim(*device_mesh.layout(), "cp")),
        context_parallel(plan),
        model_config(config) {
    if (sequence) sequence_plans = enable_context_parallel(engine, plan);
  }

  /// Plain tensors of a batch are the same on all ranks; results are made whole and plain.
  void add_root_hook(nn::Model& model) {
    nn::ForwardHook hook;
    hook.before = [this](std::span<Tensor> in) {
      const planner::MeshPtr& layout = mesh.layout();
      const Placements whole(static_cast<std::size_t>(layout->ndim()));
      for (Tensor& x : in) {
        if (!x || x.has_layout()) continue;
        x = dtensor::from_local(
            x, engine, std::make_shared<const planner::DTensorSpec>(layout, whole, x.shape()));
      }
      if (sequence) shard_batch(batch_sharding(), in, sequence_plans->documents());
    };
    hook.after = [this](std::span<Tensor> out) {
      for (Tensor& x : out)
        if (x && x.has_layout()) x = dtensor::full_tensor(x);
    };
    model.add_hook(std::move(hook));
  }

  BatchSharding batch_sharding() { return {engine, *sequence, context_parallel, model_config}; }

  /// Ranks of cp compute other tokens: each keeps its summand, and data parallelism adds them up.
  void leave_summands(const nn::Parameter& parameter) {
    TensorLayout& layout = *parameter.value.layout();
    Placements placements = layout.grad_spec->placements();
    placements[static_cast<std::size_t>(*sequence)] =
        Placement::partial_of(planner::PartialOp::kSum);
    layout.grad_spec =
        engine.intern(planner::with_placements(*layout.grad_spec, std::move(placements)));
  }

  planner::PlanCache plans;
  dtensor::DistributedEngine engine;
  StyleMesh mesh;
  std::optional<FusedGroup> fused;  ///< over tp
  std::optional<int> sequence;      ///< the mesh dim cp
  planner::ContextParallelPlan context_parallel;
  const nn::ModelConfig& model_config;
  std::shared_ptr<SequencePlanCache> sequence_plans;
  /// The local parts as parameters of their own.
  std::vector<std::unique_ptr<nn::Parameter>> locals;
};

ParallelModel::ParallelModel(nn::Model& model, dtensor::DeviceMesh* mesh,
                             const planner::ParallelPlan& plan)
    : model_(model), uploads_(model.context()) {
  check(!plan.sequence_parallel || plan.tensor_parallel,
        "plan.sequence_parallel needs plan.tensor_parallel");
  const bool tensor_parallel =
      mesh != nullptr && plan.tensor_parallel && wide_dim(*mesh->layout(), "tp");
  const bool sharded = tensor_parallel || (mesh != nullptr && wide_dim(*mesh->layout(), "cp"));
  if (sharded) {
    impl_ = std::make_unique<Impl>(*mesh, model.config(), plan.context_parallel);
    const ParallelizeOptions own_values{.src_data_rank = std::nullopt};
    if (tensor_parallel) {
      impl_->fused.emplace(mesh->group(impl_->mesh.dims.acting()));
      ParallelizeOptions options = own_values;
      options.fusion = plan.fusion;
      options.fused = &*impl_->fused;
      const planner::StylePlan styles = planner::styles_of(
          plan, nn::default_styles(model.config().architecture, plan.sequence_parallel));
      warnings_ = parallelize_module(model, impl_->mesh, styles, options).warnings;
    }
    replicate_parameters(model, impl_->mesh, own_values);
    impl_->add_root_hook(model);
    if (const auto& dim = impl_->sequence)
      model.share_caches({*dim, mesh->layout()->dim_size(*dim),
                          mesh->coordinates()[static_cast<std::size_t>(*dim)]});
  }
  for (const nn::NamedParameter& p : model.named_parameters()) {
    LocalParameter local{p.name, p.parameter, nullptr};
    if (sharded) {
      const Tensor& value = p.parameter->value;
      if (impl_->sequence) impl_->leave_summands(*p.parameter);
      local.spec = value.layout()->spec;
      impl_->locals.push_back(
          std::make_unique<nn::Parameter>(nn::Parameter{value.layout()->local, p.parameter->init}));
      local.parameter = impl_->locals.back().get();
    }
    parameters_.push_back(std::move(local));
  }
}

ParallelModel::~ParallelModel() = default;

nn::Batch ParallelModel::place(const nn::HostBatch& host) {
  if (impl_ && impl_->sequence) return shard_batch(impl_->batch_sharding(), uploads_, host);
  return nn::to_batch(uploads_, host);
}

void ParallelModel::reserve_workspace(std::int64_t bytes) {
  if (bytes > 0 && impl_ && impl_->fused && impl_->fused->is_enabled())
    impl_->fused->symmetric().workspace(static_cast<std::size_t>(bytes));
}

std::vector<nn::NamedParameter> ParallelModel::named_local_parameters() const {
  std::vector<nn::NamedParameter> named;
  for (const LocalParameter& p : parameters_) named.push_back({p.name, p.parameter});
  return named;
}

}  // namespace meshloom::parallel
