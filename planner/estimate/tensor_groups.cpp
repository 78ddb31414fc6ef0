// SPDX-License-Identifier: Apache-2.0
#include "planner/estimate/tensor_groups.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>

#include "kernels/base/error.h"
#include "planner/name_pattern.h"

namespace meshloom::planner {
namespace {

using Part = bool TensorGroups::*;

/// A module that the default plan shards. Of a layer its name begins behind "PREFIX.LAYER.".
struct ShardedModule {
  std::string name;
  const char* style;
  Part part;
};

constexpr const char* kColwise = "ColwiseParallel";
constexpr const char* kRowwise = "RowwiseParallel";

struct ShardedModules {
  std::vector<ShardedModule> outside, block;
};

ShardedModules sharded_modules(const ModelShape& model) {
  constexpr Part kAttention = &TensorGroups::attention, kMlp = &TensorGroups::mlp;
  constexpr Part kEmbedding = &TensorGroups::embedding, kOutput = &TensorGroups::output;
  switch (model.kind) {
    case ModelKind::kGpt2:
      return {{{"transformer.wte", kRowwise, kEmbedding}, {"lm_head", kColwise, kOutput}},
              {{"attn.c_attn", kColwise, kAttention},
               {"attn.c_proj", kRowwise, kAttention},
               {"mlp.c_fc", kColwise, kMlp},
               {"mlp.c_proj", kRowwise, kMlp}}};
    case ModelKind::kLlama:
      return {{{"model.embed_tokens", kRowwise, kEmbedding}, {"lm_head", kColwise, kOutput}},
              {{"self_attn.q_proj", kColwise, kAttention},
               {"self_attn.k_proj", kColwise, kAttention},
               {"self_attn.v_proj", kColwise, kAttention},
               {"self_attn.o_proj", kRowwise, kAttention},
               {"mlp.gate_proj", kColwise, kMlp},
               {"mlp.up_proj", kColwise, kMlp},
               {"mlp.down_proj", kRowwise, kMlp}}};
    case ModelKind::kBert:
      return {{{"bert.embeddings.word_embeddings", kRowwise, kEmbedding},
               {"cls.predictions", kColwise, kOutput}},
              {{"attention.self.query", kColwise, kAttention},
               {"attention.self.key", kColwise, kAttention},
               {"attention.self.value", kColwise, kAttention},
               {"attention.output.dense", kRowwise, kAttention},
               {"intermediate.dense", kColwise, kMlp},
               {"output.dense", kRowwise, kMlp}}};
  }
  throw InternalError("tensor groups: unknown kind of model");
}

/// Finds what styles say about single modules.
class Styles {
 public:
  explicit Styles(const std::vector<ModuleStyle>& styles) : styles_(styles) {
    for (const ModuleStyle& style : styles) patterns_.push_back(style.pattern);
    used_.assign(styles.size(), false);
  }

  /// Whether a module is sharded as the default plan does it.
  bool shardings(const std::string& name, const ShardedModule& module) {
    const std::optional<std::size_t> best = best_pattern(patterns_, name);
    if (!best) return false;
    used_[*best] = true;
    const ModuleStyle& style = styles_[*best];
    if (style.style != module.style || !style.plain_layouts)
      throw Unimplemented(fmt::format(
          "plan.styles: {} of {} is not estimated, only {} with the layouts of the default plan",
          style.style, name, module.style));
    return true;
  }

  /// Patterns for modules that the default plan does not shard.
  void check_used() const {
    for (std::size_t i = 0; i < used_.size(); ++i)
      if (!used_[i])
        throw Unimplemented(
            fmt::format("plan.styles: {} of {} is not estimated, only what the default plan shards",
                        styles_[i].style, styles_[i].pattern));
  }

 private:
  const std::vector<ModuleStyle>& styles_;
  std::vector<std::string> patterns_;
  std::vector<bool> used_;
};

std::string block_prefix(const ModelShape& model) { return model_parameters(model).block_prefix; }

}  // namespace

std::string to_string(const TensorGroups& groups) {
  std::string text;
  const auto add = [&](bool sharding, const char* name) {
    if (sharding) text += fmt::format("{}{}", text.empty() ? "" : ", ", name);
  };
  add(groups.embedding, "embedding");
  add(groups.attention, "attention");
  add(groups.mlp, "mlp");
  add(groups.output, "output");
  return text.empty() ? "nothing" : text;
}

TensorGroups groups_of_styles(const ModelShape& model, const std::vector<ModuleStyle>& given) {
  const ShardedModules modules = sharded_modules(model);
  Styles styles(given);
  TensorGroups groups{false, false, false, false};
  std::vector<std::pair<Part, std::string>> seen;
  const auto note = [&](const ShardedModule& module, const std::string& name) {
    const bool sharding = styles.shardings(name, module);
    for (const auto& [part, other] : seen)
      if (part == module.part && groups.*part != sharding)
        throw Unimplemented(
            fmt::format("plan.styles: {} and {} are not both {}; parts that are sharded in some "
                        "modules only are "
                        "not estimated",
                        other, name, sharding ? "whole" : "sharded"));
    groups.*module.part = sharding;
    seen.emplace_back(module.part, name);
  };
  for (const ShardedModule& module : modules.outside) note(module, module.name);
  const std::string prefix = block_prefix(model);
  for (std::int64_t layer = 0; layer < model.layers; ++layer)
    for (const ShardedModule& module : modules.block)
      note(module, fmt::format("{}.{}.{}", prefix, layer, module.name));
  styles.check_used();
  if (model.tied && groups.embedding != groups.output)
    throw Unimplemented(
        "plan.styles: embedding and output share their weight, they are estimated with both "
        "sharded or "
        "both whole only");
  return groups;
}

const char* default_input_layout(const std::string& style, const std::string& pattern) {
  // Every rank looks up all ids; what a projection by rows takes comes sharded.
  const bool table = pattern == "transformer.wte" || pattern == "model.embed_tokens" ||
                     pattern == "bert.embeddings.word_embeddings";
  return style == kColwise || table ? "R" : "S(-1)";
}

const char* default_output_layout(const std::string& style, const std::string& pattern) {
  return style == kRowwise || pattern == "lm_head" || pattern == "cls.predictions" ? "R" : "S(-1)";
}

ModelParameters model_parameters(const ModelShape& model, const TensorGroups& groups, int tp) {
  ModelParameters parameters = model_parameters(model);
  const ShardedModules modules = sharded_modules(model);
  const auto settle_all = [&](std::vector<ParameterShape>& list,
                              const std::vector<ShardedModule>& sharding) {
    for (ParameterShape& p : list) {
      for (const ShardedModule& module : sharding)
        if (p.name.starts_with(module.name + ".") && !(groups.*module.part)) p.sharding = {};
      if (p.sharding.dim >= 0) p.sharding = settle(p.sharding, p.shape[p.sharding.dim], tp);
    }
  };
  settle_all(parameters.before, modules.outside);
  settle_all(parameters.block, modules.block);
  settle_all(parameters.after, modules.outside);
  return parameters;
}

}  // namespace meshloom::planner
