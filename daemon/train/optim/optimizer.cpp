// SPDX-License-Identifier: Apache-2.0
#include "daemon/train/optim/optimizer.h"

#include <algorithm>
#include <cmath>

#include "daemon/tensor/autograd/leaf_grad.h"
#include "kernels/base/error.h"
#include "planner/name_pattern.h"

namespace meshloom::train {
namespace {

using Settings = OptimizerSettings;

std::vector<bool> choose_decay(const std::vector<nn::NamedParameter>& parameters,
                               const Settings& settings) {
  std::vector<bool> decays(parameters.size(), false);
  std::vector<bool> used(settings.decay_patterns.size(), false);
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    switch (settings.decay) {
      case Settings::Decay::kAll: decays[i] = true; break;
      case Settings::Decay::kMatrices:
        decays[i] = parameters[i].parameter->value.ndim() >= 2;
        break;
      case Settings::Decay::kPatterns:
        // All patterns say the same ("decays"), so that any match will do and ties cannot matter.
        for (std::size_t p = 0; p < used.size(); ++p)
          if (planner::matches_pattern(settings.decay_patterns[p], parameters[i].name))
            used[p] = decays[i] = true;
        break;
    }
  }
  for (std::size_t p = 0; p < used.size(); ++p)
    if (!used[p])
      throw InvalidArgument(fmt::format("optimizer.decay: pattern \"{}\" matches no parameter",
                                        settings.decay_patterns[p]),
                            "INVALID_ARGUMENT",
                            {{"field", fmt::format("run.optimizer.decay[{}]", p)}});
  return decays;
}

}  // namespace

OptimizerSettings make_optimizer_settings(const v1::OptimizerConfig& config) {
  Settings settings;
  settings.kind = config.type() == v1::OPTIMIZER_TYPE_SGD    ? Settings::Kind::kSgd
                  : config.type() == v1::OPTIMIZER_TYPE_ADAM ? Settings::Kind::kAdam
                                                             : Settings::Kind::kAdamW;
  settings.beta1 = config.beta1();
  settings.beta2 = config.beta2();
  settings.eps = config.eps();
  settings.weight_decay = config.weight_decay();
  settings.momentum = config.momentum();
  settings.nesterov = config.nesterov();
  settings.decay_patterns.assign(config.decay().begin(), config.decay().end());
  settings.groups = make_parameter_groups(config);
  settings.decay = config.decay().empty() ? Settings::Decay::kMatrices : Settings::Decay::kPatterns;
  return settings;
}

Optimizer::Optimizer(ExecutionContext& context, std::vector<nn::NamedParameter> parameters,
                     const OptimizerSettings& settings, std::vector<Tensor> masters,
                     NormGroup norm_group)
    : context_(context),
      parameters_(std::move(parameters)),
      settings_(settings),
      momentum_(settings.momentum),
      decays_(choose_decay(parameters_, settings)),
      masters_(std::move(masters)),
      norm_group_(std::move(norm_group)) {
  check(masters_.empty() || masters_.size() == parameters_.size(),
        "optimizer: {} master weights for {} parameters", masters_.size(), parameters_.size());
  const NoGradGuard no_grad(context_);
  const bool adam = settings_.kind != Settings::Kind::kSgd;
  const bool first = adam || settings_.momentum != 0.0;
  masters_.resize(parameters_.size());
  place_groups();
  for (std::size_t i = 0; i < parameters_.size(); ++i) {
    const Tensor value = parameters_[i].parameter->value.detach();
    if (value.dtype() == DType::kFloat32) {
      masters_[i] = value;
    } else if (value.dtype() == DType::kBFloat16) {
      if (!masters_[i]) {
        masters_[i] = empty(context_, value.shape(), DType::kFloat32);
        copy_into(masters_[i], value);
      }
    } else {
      throw Unimplemented(
          fmt::format("optimizer: parameter {} is {}; float32 and bfloat16 can be trained",
                      parameters_[i].name, dtype_name(value.dtype())));
    }
    const auto moment = [&] {
      return is_frozen(i) ? Tensor() : zeros(context_, value.shape(), DType::kFloat32);
    };
    if (first) moments1_.push_back(moment());
    if (adam) moments2_.push_back(moment());
  }
  scalars_.lrs.resize(lr_factors_.size());
  for (Tensor& lr : scalars_.lrs) lr = empty(context_, {1}, DType::kFloat32);
  for (Tensor* scalar : {&scalars_.sum_of_squares, &scalars_.norm, &scalars_.grad_factor})
    *scalar = empty(context_, {1}, DType::kFloat32);
  scalars_.total = empty(context_, {1}, DType::kFloat64);
  scalars_.step = empty(context_, {1}, DType::kInt64);
}

void Optimizer::place_groups() {
  std::vector<std::string> names;
  for (const nn::NamedParameter& p : parameters_) names.push_back(p.name);
  groups_ = choose_groups(settings_.groups, names);
  lr_factors_ = {1.0};
  for (const auto& group : groups_) {
    const double factor = group ? settings_.groups[*group].lr_factor : 1.0;
    const auto found = std::find(lr_factors_.begin(), lr_factors_.end(), factor);
    lr_slots_.push_back(static_cast<std::size_t>(found - lr_factors_.begin()));
    if (found == lr_factors_.end()) lr_factors_.push_back(factor);
  }
}

float Optimizer::weight_decay(std::size_t i) const {
  if (groups_[i])
    if (const auto& own = settings_.groups[*groups_[i]].weight_decay)
      return static_cast<float>(*own);
  return decays_[i] ? static_cast<float>(settings_.weight_decay) : 0.0f;
}

Tensor Optimizer::gradient(std::size_t i) const {
  const auto& grad = parameters_[i].parameter->value.leaf_grad();
  return grad && grad->has_value() && grad->value().numel() > 0 ? grad->value() : Tensor();
}

void Optimizer::set_values(const OptimizerValues& values) {
  check_internal(values.momentum == 0.0 || settings_.momentum != 0.0,
                 "optimizer: a momentum of {} without buffers", values.momentum);
  settings_.beta1 = values.beta1;
  settings_.beta2 = values.beta2;
  settings_.eps = values.eps;
  settings_.weight_decay = values.weight_decay;
  momentum_ = values.momentum;
}

void Optimizer::scale_gradients(double factor) {
  for (std::size_t i = 0; i < parameters_.size(); ++i)
    if (const Tensor grad = gradient(i))
      context_.backend().unary(context_.kernel_context(), kernels::UnaryOp::kMul, grad.view(),
                               grad.view(), factor);
}

void Optimizer::clip(double max_norm) {
  kernels::Backend& backend = context_.backend();
  const kernels::KernelContext& kernel = context_.kernel_context();
  std::vector<TensorView> counted;
  counted.reserve(parameters_.size());
  for (std::size_t i = 0; i < parameters_.size(); ++i) {
    if (!norm_group_.counted.empty() && !norm_group_.counted[i]) continue;
    if (const Tensor grad = gradient(i)) counted.push_back(grad.view());
  }
  backend.sum_of_squares(kernel, scalars_.sum_of_squares.view(), counted, false);
  backend.copy(kernel, scalars_.total.view(), scalars_.sum_of_squares.view());
  if (norm_group_.group != nullptr && norm_group_.group->size() > 1)
    norm_group_.group->all_reduce(scalars_.total.view(), comm::ReduceOp::kSum)
        ->enqueue_wait(kernel.stream);
  backend.clip_factor(kernel, scalars_.norm.view(), scalars_.grad_factor.view(),
                      scalars_.total.view(), max_norm);
  clipped_ = true;
}

std::int64_t Optimizer::first_nonfinite_gradient() const {
  std::vector<TensorView> gradients;
  std::vector<std::int64_t> owners;
  for (std::size_t i = 0; i < parameters_.size(); ++i) {
    const Tensor grad = gradient(i);
    if (!grad) continue;
    gradients.push_back(grad.view());
    owners.push_back(static_cast<std::int64_t>(i));
  }
  const Tensor found = empty(context_, {1}, DType::kInt64);
  context_.backend().first_nonfinite(context_.kernel_context(), found.view(), gradients);
  const auto index = static_cast<std::int64_t>(found.item());
  return index < 0 ? -1 : owners[static_cast<std::size_t>(index)];
}

std::vector<kernels::OptimizerTensor> Optimizer::tensors_to_step(std::size_t slot) const {
  std::vector<kernels::OptimizerTensor> tensors;
  tensors.reserve(parameters_.size());
  for (std::size_t i = 0; i < parameters_.size(); ++i) {
    if (lr_slots_[i] != slot) continue;
    const Tensor grad = gradient(i);
    if (!grad) continue;
    const Tensor& value = parameters_[i].parameter->value;
    kernels::OptimizerTensor tensor;
    tensor.master = masters_[i].view();
    tensor.grad = grad.view();
    if (!moments1_.empty()) tensor.moment1 = moments1_[i].view();
    if (!moments2_.empty()) tensor.moment2 = moments2_[i].view();
    if (value.dtype() != DType::kFloat32) tensor.working = value.view();
    tensor.weight_decay = weight_decay(i);
    tensors.push_back(tensor);
  }
  return tensors;
}

void Optimizer::step(std::int64_t number, double lr, const Tensor& loss) {
  kernels::Backend& backend = context_.backend();
  const kernels::KernelContext& kernel = context_.kernel_context();
  backend.fill(kernel, scalars_.step.view(), static_cast<double>(number));
  for (std::size_t slot = 0; slot < lr_factors_.size(); ++slot) {
    const Tensor& scaled = scalars_.lrs[slot];
    backend.fill(kernel, scaled.view(), lr * lr_factors_[slot]);
    kernels::StepScalars scalars{
        .lr = scaled.view(), .step = scalars_.step.view(), .loss = loss.view()};
    if (clipped_) {
      scalars.grad_factor = scalars_.grad_factor.view();
      scalars.grad_norm = scalars_.norm.view();
    }
    const std::vector<kernels::OptimizerTensor> tensors = tensors_to_step(slot);
    if (settings_.kind == Settings::Kind::kSgd) {
      const kernels::SgdOptions options{.momentum = static_cast<float>(momentum_),
                                        .dampening = static_cast<float>(settings_.dampening),
                                        .nesterov = settings_.nesterov};
      backend.sgd_step(kernel, tensors, scalars, options);
    } else {
      const kernels::AdamOptions options{.beta1 = static_cast<float>(settings_.beta1),
                                         .beta2 = static_cast<float>(settings_.beta2),
                                         .eps = static_cast<float>(settings_.eps),
                                         .decoupled = settings_.kind == Settings::Kind::kAdamW};
      backend.adam_step(kernel, tensors, scalars, options);
    }
  }
  clipped_ = false;
}

void Optimizer::zero_grad() {
  for (const auto& [name, parameter] : parameters_)
    if (const auto& grad = parameter->value.leaf_grad()) grad->clear();
}

std::vector<StateTensor> Optimizer::state(const std::vector<planner::SpecPtr>& specs) const {
  std::vector<StateTensor> state;
  for (std::size_t i = 0; i < parameters_.size(); ++i) {
    const std::string& name = parameters_[i].name;
    const planner::SpecPtr spec = specs.empty() ? nullptr : specs[i];
    state.push_back({"model." + name, masters_[i], spec});
    if (is_frozen(i)) continue;
    if (!moments1_.empty()) state.push_back({"optimizer.moment1." + name, moments1_[i], spec});
    if (!moments2_.empty()) state.push_back({"optimizer.moment2." + name, moments2_[i], spec});
  }
  return state;
}

void Optimizer::reset_moments() {
  for (const std::vector<Tensor>* moments : {&moments1_, &moments2_})
    for (const Tensor& moment : *moments)
      if (moment) context_.backend().fill(context_.kernel_context(), moment.view(), 0.0);
}

void Optimizer::refresh_working_copies() {
  for (std::size_t i = 0; i < parameters_.size(); ++i) {
    const Tensor value = parameters_[i].parameter->value.detach();
    if (value.dtype() != DType::kFloat32) copy_into(value, masters_[i]);
  }
}

}  // namespace meshloom::train
