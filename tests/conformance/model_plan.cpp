// SPDX-License-Identifier: Apache-2.0
#include "tests/conformance/model_plan.h"

#include "kernels/base/error.h"
#include "tests/conformance/context_parallel_json.h"

namespace meshloom::conformance {
namespace {

planner::ActivationCheckpoint read_activation_checkpoint(const std::string& text) {
  if (text == "none") return planner::ActivationCheckpoint::kNone;
  if (text == "selective") return planner::ActivationCheckpoint::kSelective;
  if (text == "full") return planner::ActivationCheckpoint::kFull;
  throw InvalidArgument(
      fmt::format("plan.activation_checkpoint is '{}', expected none, selective or full", text));
}

DType read_dtype(const std::string& text) {
  if (text == "float32") return DType::kFloat32;
  if (text == "bfloat16") return DType::kBFloat16;
  throw InvalidArgument(fmt::format("plan.dtype is '{}', expected float32 or bfloat16", text));
}

void read_betas(ObjectReader& reader, train::OptimizerSettings& settings) {
  if (!reader.has("betas")) return;
  const Json& betas = reader.value("betas");
  check(betas.is_array() && betas.size() == 2 && betas[0].is_number() && betas[1].is_number(),
        "optimizer.betas must be two numbers, not {}", betas.dump());
  settings.beta1 = betas[0].get<double>();
  settings.beta2 = betas[1].get<double>();
}

void read_kind(ObjectReader& reader, train::OptimizerSettings& settings) {
  using Kind = train::OptimizerSettings::Kind;
  const std::string type = reader.string("type");
  check(type == "adamw" || type == "adam" || type == "sgd",
        "optimizer.type is '{}', expected adamw, adam or sgd", type);
  settings.kind = type == "adamw" ? Kind::kAdamW : type == "adam" ? Kind::kAdam : Kind::kSgd;
  // torch's defaults.
  settings.beta2 = 0.999;
  settings.weight_decay = settings.kind == Kind::kAdamW ? 0.01 : 0.0;
}

}  // namespace

planner::ParallelPlan read_model_plan(const Case& c, planner::FusionMode fusion) {
  planner::ParallelPlan plan;
  if (!c.keys.contains("plan")) return plan;
  ObjectReader reader(c.keys.at("plan"), "plan");
  plan.tensor_parallel = reader.boolean_or("tensor_parallel", false);
  plan.sequence_parallel = reader.boolean_or("sequence_parallel", false);
  if (plan.sequence_parallel) plan.fusion.mode = fusion;
  plan.fully_shard = reader.boolean_or("fully_shard", false);
  if (reader.has("context_parallel")) {
    ObjectReader context_parallel(reader.value("context_parallel"), "plan.context_parallel");
    plan.context_parallel = read_context_parallel_plan(context_parallel);
    context_parallel.finish();
  }
  plan.checkpointing =
      read_activation_checkpoint(reader.string_or("activation_checkpoint", "none"));
  plan.dtype = read_dtype(reader.string_or("dtype", "float32"));
  reader.finish();
  return plan;
}

std::optional<OptimizerPlan> read_optimizer_plan(const Case& c) {
  if (!c.keys.contains("optimizer")) return std::nullopt;
  ObjectReader reader(c.keys.at("optimizer"), "optimizer");
  OptimizerPlan plan;
  train::OptimizerSettings& settings = plan.settings;
  read_kind(reader, settings);
  read_betas(reader, settings);
  plan.lr = reader.number("lr");
  settings.eps = reader.number_or("eps", 1e-8);
  settings.weight_decay = reader.number_or("weight_decay", settings.weight_decay);
  settings.momentum = reader.number_or("momentum", 0.0);
  settings.dampening = reader.number_or("dampening", 0.0);
  settings.nesterov = reader.boolean_or("nesterov", false);
  const std::string decay = reader.string_or("decay", "all");
  check(decay == "all" || decay == "ndim>=2", "optimizer.decay is '{}', expected all or ndim>=2",
        decay);
  using Decay = train::OptimizerSettings::Decay;
  settings.decay = decay == "all" ? Decay::kAll : Decay::kMatrices;
  plan.max_norm = reader.number_or("clip_grad_norm", 0.0);
  plan.steps = reader.integer_or("steps", 1);
  check(plan.steps >= 1, "optimizer.steps is {}", plan.steps);
  reader.finish();
  return plan;
}

}  // namespace meshloom::conformance
