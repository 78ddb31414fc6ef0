// SPDX-License-Identifier: Apache-2.0
#include "daemon/nn/models/default_styles.h"

#include "kernels/base/error.h"

namespace meshloom::nn {
namespace {

using planner::ArgumentLayouts;
using planner::ParallelStyle;
using planner::Placement;
using planner::Placements;
using planner::StyleKind;
using planner::StylePlan;

/// Makes the default styles of one model.
class StyleMaker {
 public:
  explicit StyleMaker(bool sequence_parallel)
      : sequence_parallel_(sequence_parallel),
        stream_({sequence_parallel ? Placement::shard(1) : Placement::replicate()}) {}

  /// Sharded by output features; the input is the residual stream's.
  void columns(const std::string& pattern) {
    add(pattern,
        {.kind = StyleKind::kColwise, .input_layouts = stream(), .use_local_output = false});
  }
  /// Logits are whole.
  void output(const std::string& pattern) {
    add(pattern, {.kind = StyleKind::kColwise,
                  .input_layouts = stream(),
                  .output_layouts = whole(),
                  .use_local_output = false});
  }
  /// Sharded by input features, which come sharded; the output joins the residual stream.
  void rows(const std::string& pattern) {
    add(pattern,
        {.kind = StyleKind::kRowwise, .output_layouts = stream(), .use_local_output = false});
  }
  /// A table by rows, looked up with ids that every rank has.
  void vocabulary(const std::string& pattern) {
    add(pattern, {.kind = StyleKind::kRowwise,
                  .input_layouts = whole(),
                  .output_layouts = stream(),
                  .use_local_output = false});
  }
  /// A module whose parameters every rank has, run on each rank's part of the sequence.
  void positions(const std::string& pattern) {
    if (sequence_parallel_) add(pattern, {.kind = StyleKind::kSequence});
  }
  /// A module whose parts all take the whole sequence: gathered once.
  void gathered(const std::string& pattern) {
    if (!sequence_parallel_) return;
    add(pattern, {.kind = StyleKind::kPrepareInput,
                  .input_layouts = stream(),
                  .desired_input_layouts = whole()});
  }
  /// Sharded by output features inside a module that was gathered.
  void inner_columns(const std::string& pattern) {
    add(pattern, {.kind = StyleKind::kColwise, .use_local_output = false});
  }

  StylePlan take() { return std::move(plan_); }

 private:
  void add(const std::string& pattern, ParallelStyle style) {
    plan_.push_back({pattern, {std::move(style)}});
  }
  ArgumentLayouts stream() const { return {stream_}; }
  ArgumentLayouts whole() const { return {Placements{Placement::replicate()}}; }

  bool sequence_parallel_;
  Placements stream_;
  StylePlan plan_;
};

void gpt2(StyleMaker& plan) {
  plan.vocabulary("transformer.wte");
  plan.positions("transformer.wpe");
  plan.positions("transformer.h.*.ln_[12]");
  plan.columns("transformer.h.*.attn.c_attn");
  plan.rows("transformer.h.*.attn.c_proj");
  plan.columns("transformer.h.*.mlp.c_fc");
  plan.rows("transformer.h.*.mlp.c_proj");
  plan.positions("transformer.ln_f");
  plan.output("lm_head");
}

void llama(StyleMaker& plan) {
  plan.vocabulary("model.embed_tokens");
  plan.positions("model.layers.*.input_layernorm");
  plan.gathered("model.layers.*.self_attn");
  plan.inner_columns("model.layers.*.self_attn.[qkv]_proj");
  plan.rows("model.layers.*.self_attn.o_proj");
  plan.positions("model.layers.*.post_attention_layernorm");
  plan.gathered("model.layers.*.mlp");
  plan.inner_columns("model.layers.*.mlp.gate_proj");
  plan.inner_columns("model.layers.*.mlp.up_proj");
  plan.rows("model.layers.*.mlp.down_proj");
  plan.positions("model.norm");
  plan.output("lm_head");
}

void bert(StyleMaker& plan) {
  plan.vocabulary("bert.embeddings.word_embeddings");
  plan.positions("bert.embeddings.position_embeddings");
  plan.positions("bert.embeddings.token_type_embeddings");
  plan.positions("bert.embeddings.LayerNorm");
  plan.gathered("bert.encoder.layer.*.attention.self");
  plan.inner_columns("bert.encoder.layer.*.attention.self.query");
  plan.inner_columns("bert.encoder.layer.*.attention.self.key");
  plan.inner_columns("bert.encoder.layer.*.attention.self.value");
  plan.rows("bert.encoder.layer.*.attention.output.dense");
  plan.positions("bert.encoder.layer.*.attention.output.LayerNorm");
  plan.columns("bert.encoder.layer.*.intermediate.dense");
  plan.rows("bert.encoder.layer.*.output.dense");
  plan.positions("bert.encoder.layer.*.output.LayerNorm");
  plan.positions("cls.predictions.transform.dense");
  plan.positions("cls.predictions.transform.LayerNorm");
  plan.output("cls.predictions");
}

}  // namespace

StylePlan default_styles(Architecture architecture, bool sequence_parallel) {
  StyleMaker plan(sequence_parallel);
  switch (architecture) {
    case Architecture::kGpt2: gpt2(plan); break;
    case Architecture::kLlama: llama(plan); break;
    case Architecture::kBert: bert(plan); break;
    default: throw InternalError("default_styles: unknown architecture");
  }
  return plan.take();
}

}  // namespace meshloom::nn
