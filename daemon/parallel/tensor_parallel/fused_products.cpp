// SPDX-License-Identifier: Apache-2.0
#include "daemon/parallel/tensor_parallel/fused_products.h"

#include <algorithm>

#include "daemon/comm/symm_mem/fused/fused_autograd.h"
#include "daemon/comm/symm_mem/symmetric_memory.h"
#include "daemon/dtensor/api/from_local.h"
#include "daemon/dtensor/api/to_local.h"
#include "daemon/tensor/ops/elementwise.h"
#include "kernels/base/error.h"

namespace meshloom::parallel {
namespace {

using planner::DimOrderPtr;
using planner::DTensorSpec;
using planner::FusedProduct;
using planner::Placement;
using planner::Placements;
using planner::SpecPtr;

int acting_dim(const StyleMesh& mesh) { return mesh.dims.acting().front(); }

/// Whether the acting dim is the last one to shard this dim of x, and nothing is Partial.
bool shards_last(const Tensor& x, int dim, const StyleMesh& mesh) {
  if (!x.has_layout() || dim >= x.ndim()) return false;
  const DTensorSpec& spec = *x.layout()->spec;
  const std::vector<int>& sharding = spec.sharding_dims(dim);
  return !spec.has_partial() && !sharding.empty() && sharding.back() == acting_dim(mesh);
}

/// The layout of a product: that of x with `features` at the end, the acting dim sharding `dim`,
/// by `order` if it is the features.
SpecPtr product_spec(const DTensorSpec& x, const StyleMesh& mesh, std::int64_t features, int dim,
                     const DimOrderPtr& order) {
  const int acting = acting_dim(mesh);
  Shape shape = x.shape();
  shape[shape.size() - 1] = features;
  Placements placements = x.placements();
  placements[static_cast<std::size_t>(acting)] = Placement::shard(dim);
  std::vector<DimOrderPtr> orders;
  for (int d = 0; d < x.mesh().ndim(); ++d) orders.push_back(d == acting ? order : x.dim_order(d));
  planner::ShardOrder shards;
  for (int t = 0; t < shape.size(); ++t) {
    std::vector<int> sharding = x.sharding_dims(t);
    std::erase(sharding, acting);
    if (t == dim) sharding.push_back(acting);
    if (!sharding.empty()) shards.push_back({t, std::move(sharding)});
  }
  return mesh.engine.intern(std::make_shared<const DTensorSpec>(
      mesh.layout(), std::move(placements), shape, std::move(shards), std::move(orders)));
}

/// This rank's part of a parameter; where other mesh dims shard x, ranks along them have summands
/// of its gradient.
Tensor local_parameter(const Tensor& parameter, const DTensorSpec& x, const StyleMesh& mesh) {
  const SpecPtr& spec = parameter.layout()->spec;
  Placements gradient = spec->placements();
  for (std::size_t d = 0; d < gradient.size(); ++d)
    if (gradient[d].is_replicate() && x.placements()[d].is_shard())
      gradient[d] = Placement::partial_of(planner::PartialOp::kSum);
  return dtensor::redistribute_local(
      parameter.layout()->local,
      {spec, spec, mesh.engine.intern(planner::with_placements(*spec, std::move(gradient))),
       gradient_spec(parameter)},
      mesh.engine.context());
}

/// Made again in backward, so that the pre-activation alone is kept.
Tensor activated(const Tensor& x, ops::Activation activation) {
  if (activation == ops::Activation::kNone) return x;
  const bool tanh = activation == ops::Activation::kGeluTanh;
  Tensor y = ops::gelu(x, tanh);
  if (!y.impl()->recompute)
    y.impl()->recompute = [x = x.detach(), tanh] {
      const NoGradGuard no_grad(x.context());
      return ops::gelu(x, tanh);
    };
  return y;
}

std::int64_t bytes_of(const Shape& local, std::int64_t features, DType dtype) {
  std::int64_t rows = 1;
  for (int d = 0; d + 1 < local.size(); ++d) rows *= local[d];
  return rows * features * static_cast<std::int64_t>(dtype_size(dtype));
}

/// Of the whole layer, over all ranks.
std::int64_t out_features(const nn::Linear& linear) {
  return linear.weight().layout()->spec->shape()[linear.weight_is_in_out() ? 1 : 0];
}

comm::RecordOptions record_options(const nn::Linear& linear, const FusedSettings& settings) {
  return {.b_is_out_in = !linear.weight_is_in_out(), .gather_again = settings.gather_again};
}

}  // namespace

FusedGroup::~FusedGroup() {
  if (own_) memory_->disable(group_);
}

std::string FusedGroup::enable() {
  if (symmetric_) return {};
  memory_ = group_.symmetric_memory();
  if (!memory_) return fmt::format("the {} ranks of '{}' have none", group_.size(), group_.name());
  own_ = memory_->enabled(group_) == nullptr;
  comm::SymmetricGroup& found = memory_->enable(group_);
  if (found.enabled()) symmetric_ = &found;
  return found.why_not();
}

GatheringLinears::GatheringLinears(const StyleMesh& mesh, const FusedSettings& settings, int dim)
    : mesh_(mesh), settings_(settings), dim_(dim) {}

void GatheringLinears::add(const nn::Linear& linear, Boundary border) {
  check_internal(
      layers_.empty() || linear.weight_is_in_out() == layers_.front().linear->weight_is_in_out(),
      "layers that share a gathered input hold their weights in two ways");
  layers_.push_back({&linear, std::move(border), {}});
}

bool GatheringLinears::fuses(const Tensor& x) const {
  // The features are sharded by no one, and positions by the ceil rule.
  if (dim_ + 1 >= x.ndim() || !shards_last(x, dim_, mesh_)) return false;
  const DTensorSpec& spec = *x.layout()->spec;
  if (!spec.sharding_dims(x.ndim() - 1).empty() || spec.dim_order(acting_dim(mesh_))) return false;
  if (!settings_.by_table) return true;
  const std::int64_t part = bytes_of(local_of(x).shape(), x.size(-1), x.dtype());
  return planner::fusion_pays(FusedProduct::kGather, part * mesh_.dims.parts());
}

Tensor GatheringLinears::product(std::size_t layer, const Tensor& input,
                                 ops::Activation activation) {
  Layer& mine = layers_[layer];
  if (!fuses(input)) {
    Tensor x = input;
    mine.border.apply({&x, 1});
    return mine.linear->plain(x, activation);
  }
  const bool made = input_ && input_.impl() == input.impl() && mine.product &&
                    activation == ops::Activation::kNone;
  if (!made) multiply(activated(input, activation));
  Tensor y = std::move(mine.product);
  mine.product = Tensor();
  input_ = std::any_of(layers_.begin(), layers_.end(),
                       [](const Layer& other) { return other.product.defined(); })
               ? input
               : Tensor();
  return y;
}

void GatheringLinears::multiply(const Tensor& x) {
  const DTensorSpec& spec = *x.layout()->spec;
  std::vector<Tensor> weights;
  for (const Layer& layer : layers_)
    weights.push_back(local_parameter(layer.linear->weight(), spec, mesh_));
  const comm::GatheredProducts made =
      comm::all_gather_matmul(settings_.group.symmetric(), dtensor::to_local(x), weights, dim_, {},
                              record_options(*layers_.front().linear, settings_));
  for (std::size_t i = 0; i < layers_.size(); ++i) {
    const nn::Linear& linear = *layers_[i].linear;
    const Tensor bias = linear.bias();
    Tensor y = made.products[i];
    if (bias) y = ops::add(y, local_parameter(bias, spec, mesh_));
    const DimOrderPtr& order = linear.weight().layout()->spec->dim_order(acting_dim(mesh_));
    layers_[i].product = dtensor::from_local(
        y, mesh_.engine, product_spec(spec, mesh_, out_features(linear), x.ndim() - 1, order));
  }
}

bool ScatteringLinear::fuses(const Tensor& x) const {
  if (dim_ + 1 >= x.ndim() || !shards_last(x, x.ndim() - 1, mesh_)) return false;
  const DTensorSpec &spec = *x.layout()->spec, &weight = *linear_.weight().layout()->spec;
  if (spec.sharding_dims(x.ndim() - 1).size() != 1) return false;
  const DimOrderPtr &features = spec.dim_order(acting_dim(mesh_)),
                    &inputs = weight.dim_order(acting_dim(mesh_));
  if (!features != !inputs || (features && features->digest() != inputs->digest())) return false;
  if (!settings_.by_table) return true;
  return planner::fusion_pays(
      FusedProduct::kScatter,
      bytes_of(local_of(x).shape(), out_features(linear_), DType::kFloat32));
}

Tensor ScatteringLinear::product(const Tensor& input, ops::Activation activation) {
  if (!fuses(input)) return linear_.plain(input, activation);
  const DTensorSpec& spec = *input.layout()->spec;
  const Tensor y = comm::matmul_reduce_scatter(
      settings_.group.symmetric(), activated(dtensor::to_local(input), activation),
      local_parameter(linear_.weight(), spec, mesh_), comm::ReduceOp::kSum, dim_, {},
      record_options(linear_, settings_));
  const Tensor summed = dtensor::from_local(
      y, mesh_.engine, product_spec(spec, mesh_, out_features(linear_), dim_, nullptr));
  const Tensor bias = linear_.bias();
  return bias ? ops::add(summed, bias) : summed;
}

}  // namespace meshloom::parallel
