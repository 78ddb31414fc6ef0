// SPDX-License-Identifier: Apache-2.0
#include "daemon/parallel/parallelize_model.h"

#include "daemon/dtensor/api/from_local.h"
#include "daemon/dtensor/api/to_local.h"
#include "daemon/parallel/tensor_parallel/parallelize_module.h"
#include "kernels/base/error.h"

namespace meshloom::parallel {
namespace {

using planner::Placements;
using planner::SpecPtr;

}  // namespace

struct ParallelModel::Impl {
  explicit Impl(dtensor::DeviceMesh& device_mesh)
      : engine({device_mesh, plans}), mesh(engine, "tp") {}

  /// Plain tensors of a batch are the same on all ranks; results are made whole and plain.
  void add_root_hook(nn::Model& model) {
    nn::ForwardHook hook;
    hook.before = [this](std::span<Tensor> in) {
      for (Tensor& x : in)
        if (x && !x.has_layout()) x = dtensor::from_local(x, engine, whole(x.shape()));
    };
    hook.after = [this](std::span<Tensor> out) {
      for (Tensor& x : out)
        if (x && x.has_layout()) x = dtensor::full_tensor(x);
    };
    model.add_hook(std::move(hook));
  }

  SpecPtr whole(const Shape& shape) {
    return engine.intern(std::make_shared<const planner::DTensorSpec>(
        mesh.layout(), Placements(static_cast<std::size_t>(mesh.layout()->ndim())), shape));
  }

  planner::PlanCache plans;
  dtensor::DistributedEngine engine;
  StyleMesh mesh;
  /// The local parts as parameters of their own.
  std::vector<std::unique_ptr<nn::Parameter>> locals;
};

ParallelModel::ParallelModel(nn::Model& model, dtensor::DeviceMesh* mesh,
                             const planner::ParallelPlan& plan)
    : model_(model) {
  check(!plan.sequence_parallel || plan.tensor_parallel,
        "plan.sequence_parallel needs plan.tensor_parallel");
  const bool sharded = mesh != nullptr && plan.tensor_parallel && mesh->layout()->size() > 1;
  if (sharded) {
    impl_ = std::make_unique<Impl>(*mesh);
    const planner::StylePlan styles = planner::styles_of(plan, model.config().architecture);
    const ParallelizeOptions own_values{.src_data_rank = std::nullopt};
    warnings_ = parallelize_module(model, impl_->mesh, styles, own_values).warnings;
    replicate_parameters(model, impl_->mesh, own_values);
    impl_->add_root_hook(model);
  }
  for (const nn::NamedParameter& p : model.named_parameters()) {
    LocalParameter local{p.name, p.parameter, nullptr};
    if (sharded) {
      const Tensor& value = p.parameter->value;
      local.spec = value.layout()->spec;
      impl_->locals.push_back(
          std::make_unique<nn::Parameter>(nn::Parameter{value.layout()->local, p.parameter->init}));
      local.parameter = impl_->locals.back().get();
    }
    parameters_.push_back(std::move(local));
  }
}

ParallelModel::~ParallelModel() = default;

std::vector<nn::NamedParameter> ParallelModel::named_local_parameters() const {
  std::vector<nn::NamedParameter> named;
  for (const LocalParameter& p : parameters_) named.push_back({p.name, p.parameter});
  return named;
}

}  // namespace meshloom::parallel
