// SPDX-License-Identifier: Apache-2.0
#include "tests/conformance/module_kind.h"

#include "daemon/dtensor/api/from_local.h"
#include "daemon/dtensor/api/to_local.h"
#include "daemon/dtensor/redistribute_specs.h"
#include "daemon/parallel/tensor_parallel/parallelize_module.h"
#include "daemon/tensor/autograd/backward.h"
#include "daemon/tensor/autograd/leaf_grad.h"
#include "daemon/tensor/ops/elementwise.h"
#include "kernels/base/error.h"
#include "tests/conformance/any_module.h"
#include "tests/conformance/expect_reader.h"
#include "tests/conformance/model_plan.h"
#include "tests/conformance/spec_tensors.h"
#include "tests/conformance/style_json.h"

namespace meshloom::conformance {
namespace {

const Json& module_json(const Case& c) { return ObjectReader(c.keys, "case").value("module"); }

struct ModuleCase {
  CaseInput input, output;
  Json plan = Json::object();
  std::optional<OptimizerPlan> optimizer;
};

ModuleCase read_case(const Case& c) {
  const auto one = [&](const char* key) {
    const std::vector<CaseInput> all = read_inputs(c, key);
    check(all.size() == 1 && !all[0].is_number(), "{}: a module has one tensor, not {} entries",
          key, all.size());
    return all[0];
  };
  ModuleCase read{one("inputs"), one("outputs"), Json::object(), read_optimizer_plan(c)};
  if (c.keys.contains("plan")) read.plan = c.keys.at("plan");
  return read;
}

/// Everything that needs no rank; styles are checked by the library, in `run`.
void validate(const Case& c, const TensorFile& file) {
  ExecutionContext context;
  const AnyModule made = make_module(module_json(c), context);
  const ModuleCase read = read_case(c);
  file.shape("in." + read.input.name);
  check(read.plan.is_object(), "plan: expected a map of name pattern to style, not {}",
        read.plan.dump());
  for (const nn::NamedParameter& p : made.module->named_parameters()) {
    const Shape shape = file.shape("param." + p.name);
    check(shape == p.parameter->value.shape(), "param.{} has shape {}, the module's has {}", p.name,
          to_string(shape), to_string(p.parameter->value.shape()));
  }
}

class ModuleRun {
 public:
  ModuleRun(const Case& c, const TensorFile& file, RankContext& rank, CaseResults& results)
      : file_(file),
        rank_(rank),
        results_(results),
        read_(read_case(c)),
        device_mesh_(rank.world, c.mesh),
        engine_({device_mesh_, plans_}),
        mesh_(engine_),
        made_(make_module(module_json(c), rank.context)) {}

  void run() {
    load_parameters();
    parallel::parallelize_module(*made_.module, mesh_, read_style_plan(read_.plan, rank_.mesh));
    Tensor x = load_input();
    const Tensor y = forward(x);
    store_output(y);
    if (backward()) {
      if (x.requires_grad()) store_input_grad();
      finish_gradients();
      optimize();
    }
  }

 private:
  using SpecPtr = planner::SpecPtr;

  SpecPtr spec_of(const Shape& shape, const planner::Placements& placements) {
    return engine_.intern(std::make_shared<const planner::DTensorSpec>(
        device_mesh_.layout(), planner::normalize_placements(placements, shape.size()), shape));
  }

  void load_parameters() {
    for (const nn::NamedParameter& p : made_.module->named_parameters())
      copy_into(p.parameter->value, file_.load(rank_.context, "param." + p.name));
  }

  /// A plain tensor where every rank has the whole, else one with a layout: a plain part does not
  /// tell the size of the whole.
  Tensor load_input() {
    const std::string name = "in." + read_.input.name;
    input_spec_ = spec_of(file_.shape(name), read_.input.placements);
    input_ = scatter_global(file_.load(rank_.context, name), *input_spec_, rank_);
    const bool wanted = file_.has("grad." + read_.input.name);
    if (wanted) input_.set_requires_grad(true);
    return input_spec_->replicated() ? input_ : dtensor::from_local(input_, engine_, input_spec_);
  }

  Tensor forward(const Tensor& x) {
    device_mesh_.reset_counters();
    const Tensor y = made_.forward(x);
    store_counters(device_mesh_.counters(), "forward", results_);
    return y;
  }

  void store_output(const Tensor& y) {
    const std::string& name = read_.output.name;
    const Shape shape = output_shape(y);
    output_spec_ = spec_of(shape, read_.output.placements);
    if (y.has_layout())
      check(y.layout()->spec->placements() == output_spec_->placements(),
            "output {} has layout {}, the case names {}", name, to_string(*y.layout()->spec),
            to_string(*output_spec_));
    local_output_ = y.has_layout() ? dtensor::to_local(y) : y;
    results_.placements[name] = output_spec_->placements();
    results_.local_shapes[name] = local_output_.shape();
    results_.tensors["out." + name] = gather_global(local_output_.detach(), *output_spec_, rank_);
  }

  Shape output_shape(const Tensor& y) const {
    if (file_.has("out." + read_.output.name)) return file_.shape("out." + read_.output.name);
    check(y.has_layout(), "the file has no out.{}, whose shape a plain output does not tell",
          read_.output.name);
    return y.shape();
  }

  /// d(mean of squares) where the file has no gradient.
  Tensor output_gradient() {
    const std::string name = "grad_out." + read_.output.name;
    const NoGradGuard no_grad(rank_.context);
    if (file_.has(name))
      return scatter_global(file_.load(rank_.context, name),
                            *dtensor::without_partial(output_spec_), rank_);
    return ops::mul(local_output_.detach(),
                    2.0 / static_cast<double>(numel(output_spec_->shape())));
  }

  /// False where no gradient is wanted.
  bool backward() {
    if (!local_output_.requires_grad()) return false;
    const Tensor outputs[] = {local_output_};
    const Tensor grads[] = {output_gradient()};
    device_mesh_.reset_counters();
    autograd::backward(outputs, grads);
    store_counters(device_mesh_.counters(), "backward", results_);
    return true;
  }

  void store_input_grad() {
    const Tensor grad = input_.grad();
    results_.tensors["grad." + read_.input.name] =
        gather_global(grad ? grad : zeros(rank_.context, input_.shape(), DType::kFloat32),
                      *dtensor::without_partial(input_spec_), rank_);
  }

  /// This rank's leaf of a parameter and how it is held; null: whole and plain.
  struct Held {
    Tensor leaf;
    SpecPtr spec;
  };
  static Held held(const nn::NamedParameter& p) {
    const Tensor& value = p.parameter->value;
    return value.has_layout() ? Held{value.layout()->local, value.layout()->spec}
                              : Held{value, nullptr};
  }

  void finish_gradients() {
    for (const nn::NamedParameter& p : made_.module->named_parameters()) {
      const Held h = held(p);
      Tensor mine = h.leaf.grad();
      if (!mine) mine = zeros(rank_.context, h.leaf.shape(), DType::kFloat32);
      if (h.spec) {
        const SpecPtr from = gradient_spec(p.parameter->value);
        mine = dtensor::redistribute_local(mine, {from, engine_.gradient_of(h.spec)},
                                           engine_.context());
        copy_into(h.leaf.leaf_grad()->buffer(), mine);
        h.leaf.leaf_grad()->mark_written();
      }
      results_.tensors["grad.param." + p.name] =
          h.spec ? gather_global(mine, *h.spec, rank_) : mine;
    }
  }

  void optimize() {
    if (!read_.optimizer) return;
    std::vector<std::unique_ptr<nn::Parameter>> locals;
    std::vector<nn::NamedParameter> named;
    for (const nn::NamedParameter& p : made_.module->named_parameters()) {
      locals.push_back(
          std::make_unique<nn::Parameter>(nn::Parameter{held(p).leaf, p.parameter->init}));
      named.push_back({p.name, locals.back().get()});
    }
    train::Optimizer optimizer(rank_.context, named, read_.optimizer->settings);
    optimizer.step(1, read_.optimizer->lr);
    for (const nn::NamedParameter& p : made_.module->named_parameters()) {
      const Held h = held(p);
      results_.tensors["param_after." + p.name] =
          h.spec ? gather_global(h.leaf.detach(), *h.spec, rank_) : h.leaf.detach();
    }
  }

  const TensorFile& file_;
  RankContext& rank_;
  CaseResults& results_;
  ModuleCase read_;
  dtensor::DeviceMesh device_mesh_;
  planner::PlanCache plans_;
  dtensor::DistributedEngine engine_;
  parallel::StyleMesh mesh_;
  AnyModule made_;
  SpecPtr input_spec_, output_spec_;
  Tensor input_, local_output_;
};

void run(const Case& c, const TensorFile& file, RankContext& rank, CaseResults& results) {
  ModuleRun(c, file, rank, results).run();
}

}  // namespace

const Kind& module_kind() {
  static const Kind kind{
      "module", {"module", "inputs", "outputs", "plan", "optimizer"}, validate, run};
  return kind;
}

}  // namespace meshloom::conformance
