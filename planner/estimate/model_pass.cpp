// SPDX-License-Identifier: Apache-2.0
#include "planner/estimate/model_pass.h"

#include <algorithm>
#include <map>

#include "kernels/base/integer_math.h"

namespace meshloom::planner {
namespace {

using Tensors = std::vector<PassTensorPtr>;

/// What passes between pre-norm layers; `x` is null at the start.
struct Stream {
  PassTensorPtr x, residual;
};

class Walk {
 public:
  Walk(const ModelShape& model, const StyledModel& styled, std::int64_t batch,
       std::int64_t sequence)
      : m_(model), pass_(styled.mesh), batch_(batch), sequence_(sequence) {
    for (const auto* list : {&styled.before, &styled.after})
      for (const StyledModule& module : *list) outside_[module.shape.name] = &module;
    for (const StyledModule& module : styled.block) block_[module.shape.name] = &module;
    for (const auto& [name, module] : outside_)
      for (const ModelParameter& p : module->parameters) leaves_[p.name] = leaf(p);
  }

  ModelPass run();

 private:
  PassTensorPtr leaf(const ModelParameter& p) const {
    return pass_.parameter(p.spec, p.summands, {"", p.name});
  }
  /// Of a module here; null if it has none of that name.
  PassTensorPtr parameter(const std::string& module_name, const char* name) const {
    const auto found = leaves_.find(module_name + "." + name);
    return found == leaves_.end() ? nullptr : found->second;
  }

  /// A module's forward between its styles.
  template <typename Forward>
  Tensors call(const std::string& name, Tensors inputs, const Forward& forward) {
    const std::vector<StyleAction>& actions = (in_layer_ ? block_ : outside_).at(name)->actions;
    const auto apply = [&](const std::vector<ArgumentRule>& rules, Tensors& tensors) {
      for (std::size_t i = 0; i < std::min(rules.size(), tensors.size()); ++i)
        tensors[i] = pass_.apply(rules[i], tensors[i]);
    };
    for (const StyleAction& action : actions) apply(action.inputs, inputs);
    Tensors outputs = forward(inputs);
    for (const StyleAction& action : actions) apply(action.outputs, outputs);
    return outputs;
  }
  PassTensorPtr op(OpId id, const Tensors& inputs, const OpAttributes& attributes,
                   const TensorLabel& label) {
    return pass_.run(id, inputs, attributes, {label}).outputs[0];
  }

  PassTensorPtr embedding(const std::string& name, const Shape& ids, const TensorLabel& label);
  PassTensorPtr linear(const std::string& name, const PassTensorPtr& x, const TensorLabel& label,
                       bool activated = false);
  Tensors norm(const std::string& name, const PassTensorPtr& x, const PassTensorPtr& residual,
               const TensorLabel& label);
  PassTensorPtr split_features(const PassTensorPtr& x, std::int64_t heads);
  PassTensorPtr heads_first(const PassTensorPtr& x) {
    return op(OpId::kTranspose, {x}, {{}, {1, 2}}, x->label);
  }
  PassTensorPtr split_heads(const PassTensorPtr& x, std::int64_t heads) {
    return heads_first(split_features(x, heads));
  }
  PassTensorPtr attention(const PassTensorPtr& q, const PassTensorPtr& k, const PassTensorPtr& v);
  PassTensorPtr dropout(const PassTensorPtr& x, bool wanted) {
    return wanted ? op(OpId::kDropout, {x}, {}, x->label) : x;
  }
  /// What is between the layers of an MLP, which keeps it for backward.
  PassTensorPtr activation_input(const PassTensorPtr& x) {
    sizes_.inner = x->elements();
    x->received = false;
    return x;
  }
  PassTensorPtr activated(const std::string& name, const PassTensorPtr& x,
                          const TensorLabel& label);

  PassTensorPtr embed();
  Stream layer(const Stream& in);
  Stream gpt2_layer(const Stream& in);
  Stream llama_layer(const Stream& in);
  PassTensorPtr bert_layer(const PassTensorPtr& x);
  PassTensorPtr finish(const Stream& in);
  void loss(const PassTensorPtr& hidden, ModelPass& result);

  const ModelShape& m_;
  LayoutPass pass_;
  std::int64_t batch_, sequence_;
  std::map<std::string, const StyledModule*> outside_, block_;
  std::map<std::string, PassTensorPtr> leaves_;
  bool in_layer_ = false, in_mlp_ = false;
  LayerSizes sizes_;
};

const TensorLabel kAttentionInput{"attention", "inputs"}, kAttentionOutput{"attention", "outputs"};
const TensorLabel kMlpInput{"MLP", "inputs"}, kMlpOutput{"MLP", "outputs"};
const TensorLabel kKeysAndValues{"", "keys and values"}, kQueries{"", "queries"};
const TensorLabel kStream{"", "residual stream"}, kMlpFeatures{"", "features of the MLP"};
const TensorLabel kHidden{"", "last norm's output"};

PassTensorPtr Walk::embedding(const std::string& name, const Shape& ids, const TensorLabel& label) {
  const PassTensorPtr given = pass_.input(pass_.whole(ids), {"", "token ids"}, false);
  return call(name, {given}, [&](const Tensors& in) {
    return pass_.run(OpId::kEmbedding, {parameter(name, "weight"), in[0]}, {{}, {-1}}, {label})
        .outputs;
  })[0];
}

PassTensorPtr Walk::linear(const std::string& name, const PassTensorPtr& x,
                           const TensorLabel& label, bool activated) {
  const bool in_out = in_layer_ && m_.kind == Architecture::kGpt2;
  return call(name, {x}, [&](const Tensors& in) {
    PassTensorPtr y = in[0];
    // No activation of summands is a sum of activations.
    if (activated && y->spec && y->spec->has_partial()) y = op(OpId::kUnary, {y}, {}, y->label);
    PassResult result =
        pass_.run(OpId::kLinear, {y, parameter(name, "weight"), parameter(name, "bias")},
                  {{}, {in_out ? 1 : 0}}, {label});
    const Shape& local = result.inputs[0].local;
    sizes_.matmul +=
        static_cast<double>(numel(result.inputs[1].local)) *
        (static_cast<double>(local[0] * local[1]) / static_cast<double>(batch_ * sequence_));
    if (result.inputs[0].received) sizes_.received += numel(local);
    if (result.inputs[0].received && in_mlp_) sizes_.in_passing += numel(local);
    const PlacedInput& weight = result.inputs[1];
    if (weight.copied) sizes_.received += numel(weight.local);
    if (weight.summed)
      sizes_.weight_gradient = std::max(sizes_.weight_gradient, numel(weight.local));
    return result.outputs;
  })[0];
}

Tensors Walk::norm(const std::string& name, const PassTensorPtr& x, const PassTensorPtr& residual,
                   const TensorLabel& label) {
  const auto forward = [&](const Tensors& in) -> Tensors {
    const PassTensorPtr weight = parameter(name, "weight"), bias = parameter(name, "bias");
    PassResult result =
        in[0] && in[1]
            ? pass_.run(OpId::kAddNorm, {in[0], in[1], weight, bias}, {{}, {1}}, {label, kStream})
            : pass_.run(OpId::kNorm, {in[0] ? in[0] : in[1], weight, bias}, {{}, {1}}, {label});
    if (result.outputs.size() == 1) result.outputs.push_back(in[0] ? in[0] : in[1]);
    const std::int64_t kept = result.outputs[1]->elements();
    sizes_.norms += kept;
    sizes_.norm_rows += kept / weight->elements();
    return result.outputs;
  };
  return call(name, {x, residual}, forward);
}

PassTensorPtr Walk::split_features(const PassTensorPtr& x, std::int64_t heads) {
  return op(OpId::kReshape, {x}, {{batch_, sequence_, heads, m_.head_dim}, {}}, x->label);
}

PassTensorPtr Walk::attention(const PassTensorPtr& q, const PassTensorPtr& k,
                              const PassTensorPtr& v) {
  PassResult result =
      pass_.run(OpId::kAttention, {q, k, v, nullptr, nullptr}, {}, {{"", "attended values"}});
  const std::int64_t o = result.outputs[0]->elements();
  sizes_.queries = o;
  sizes_.attention = q->elements() + k->elements() + v->elements() + o;
  sizes_.logsumexp = result.outputs[1]->elements();
  const std::int64_t heads = result.inputs[0].local[1], kv_heads = result.inputs[1].local[1];
  if (heads < m_.heads && kv_heads == m_.kv_heads && m_.kv_heads < m_.heads) {
    // Attention takes the heads that this rank's queries use.
    const std::int64_t shared = m_.heads / m_.kv_heads;
    sizes_.attention +=
        2 * divide_up(heads, shared) * m_.head_dim * result.inputs[1].local[0] * sequence_;
  }
  const PassTensorPtr joined =
      op(OpId::kTranspose, {result.outputs[0]}, {{}, {1, 2}}, result.outputs[0]->label);
  return op(OpId::kReshape, {joined}, {{batch_, sequence_, m_.q_width()}, {}}, joined->label);
}

PassTensorPtr Walk::activated(const std::string& name, const PassTensorPtr& x,
                              const TensorLabel& label) {
  const PassTensorPtr in = activation_input(x);
  if (m_.activation == MlpActivation::kGelu) return linear(name, in, label, true);
  return linear(name, op(OpId::kUnary, {in}, {}, in->label), label);
}

PassTensorPtr Walk::embed() {
  const Shape ids{batch_, sequence_}, one{1, sequence_};
  const TensorLabel token{"", "token embedding"}, position{"", "position embedding"};
  switch (m_.kind) {
    case Architecture::kLlama: return embedding("model.embed_tokens", ids, token);
    case Architecture::kGpt2: {
      const PassTensorPtr tokens = embedding("transformer.wte", ids, token);
      const PassTensorPtr sum =
          op(OpId::kAdd, {tokens, embedding("transformer.wpe", one, position)}, {}, kStream);
      return dropout(sum, m_.embedding_dropout);
    }
    case Architecture::kBert: break;
  }
  const std::string prefix = "bert.embeddings.";
  const PassTensorPtr words = embedding(prefix + "word_embeddings", ids, token);
  const PassTensorPtr types =
      embedding(prefix + "token_type_embeddings", one, {"", "token type embedding"});
  const PassTensorPtr typed = op(OpId::kAdd, {words, types}, {}, kStream);
  const PassTensorPtr sum = op(
      OpId::kAdd, {typed, embedding(prefix + "position_embeddings", one, position)}, {}, kStream);
  return dropout(norm(prefix + "LayerNorm", sum, nullptr, kAttentionInput)[0],
                 m_.embedding_dropout);
}

Stream Walk::gpt2_layer(const Stream& in) {
  const Tensors first = norm("ln_1", in.x, in.residual, kAttentionInput);
  const PassTensorPtr attended = call("attn", {first[0]}, [&](const Tensors& x) -> Tensors {
    const PassTensorPtr fused = linear("attn.c_attn", x[0], {"", "queries, keys and values"});
    const Tensors qkv = pass_
                            .run(OpId::kSplit, {fused}, {{}, {m_.hidden, 2}},
                                 {kQueries, kKeysAndValues, kKeysAndValues})
                            .outputs;
    return {linear("attn.c_proj",
                   attention(split_heads(qkv[0], m_.heads), split_heads(qkv[1], m_.heads),
                             split_heads(qkv[2], m_.heads)),
                   kAttentionOutput)};
  })[0];
  const Tensors second = norm("ln_2", dropout(attended, m_.residual_dropout), first[1], kMlpInput);
  in_mlp_ = true;
  const PassTensorPtr mlp = call("mlp", {second[0]}, [&](const Tensors& x) -> Tensors {
    return {activated("mlp.c_proj", linear("mlp.c_fc", x[0], kMlpFeatures), kMlpOutput)};
  })[0];
  return {dropout(mlp, m_.residual_dropout), second[1]};
}

Stream Walk::llama_layer(const Stream& in) {
  const Tensors first = norm("input_layernorm", in.x, in.residual, kAttentionInput);
  const PassTensorPtr attended = call("self_attn", {first[0]}, [&](const Tensors& x) -> Tensors {
    const auto heads = [&](const std::string& name, std::int64_t count, const TensorLabel& label) {
      return split_features(linear("self_attn." + name + "_proj", x[0], label), count);
    };
    const auto rotated = [&](const std::string& name, std::int64_t count,
                             const TensorLabel& label) {
      PassTensorPtr split = heads(name, count, label);
      if (m_.qk_norm) split = norm("self_attn." + name + "_norm", split, nullptr, label)[0];
      return op(OpId::kRope, {heads_first(split), nullptr, nullptr, nullptr}, {}, label);
    };
    const PassTensorPtr q = rotated("q", m_.heads, kQueries);
    const PassTensorPtr k = rotated("k", m_.kv_heads, kKeysAndValues);
    const PassTensorPtr v = heads_first(heads("v", m_.kv_heads, kKeysAndValues));
    return {linear("self_attn.o_proj", attention(q, k, v), kAttentionOutput)};
  })[0];
  const Tensors second = norm("post_attention_layernorm", attended, first[1], kMlpInput);
  in_mlp_ = true;
  const PassTensorPtr mlp = call("mlp", {second[0]}, [&](const Tensors& x) -> Tensors {
    const PassTensorPtr gate = linear("mlp.gate_proj", x[0], kMlpFeatures);
    const PassTensorPtr up = linear("mlp.up_proj", x[0], kMlpFeatures);
    const PassTensorPtr product = op(OpId::kSwiglu, {gate, up}, {}, kMlpFeatures);
    return {linear("mlp.down_proj", activation_input(product), kMlpOutput)};
  })[0];
  return {mlp, second[1]};
}

PassTensorPtr Walk::bert_layer(const PassTensorPtr& x) {
  const PassTensorPtr attended = call("attention.self", {x}, [&](const Tensors& in) -> Tensors {
    const auto heads = [&](const char* name, const TensorLabel& label) {
      return split_heads(linear(std::string("attention.self.") + name, in[0], label), m_.heads);
    };
    const PassTensorPtr q = heads("query", kQueries), k = heads("key", kKeysAndValues);
    return {attention(q, k, heads("value", kKeysAndValues))};
  })[0];
  const PassTensorPtr joined = linear("attention.output.dense", attended, kAttentionOutput);
  const PassTensorPtr mid =
      norm("attention.output.LayerNorm", dropout(joined, m_.residual_dropout), x, kMlpInput)[0];
  in_mlp_ = true;
  const PassTensorPtr features = linear("intermediate.dense", mid, kMlpFeatures);
  const PassTensorPtr mlp = activated("output.dense", features, kMlpOutput);
  return norm("output.LayerNorm", dropout(mlp, m_.residual_dropout), mid, kAttentionInput)[0];
}

Stream Walk::layer(const Stream& in) {
  in_layer_ = true;
  in_mlp_ = false;
  sizes_ = {};
  for (const auto& [name, module] : block_)
    for (const ModelParameter& p : module->parameters) leaves_[p.name] = leaf(p);
  Tensors inputs{in.x, in.residual};
  if (m_.kind == Architecture::kBert) inputs = {in.residual};
  const Tensors out = call("", inputs, [&](const Tensors& x) -> Tensors {
    for (const PassTensorPtr& t : x) sizes_.boundary += (t ? t : x.back())->elements();
    if (m_.kind == Architecture::kBert) return {bert_layer(x[0])};
    const Stream result =
        m_.kind == Architecture::kGpt2 ? gpt2_layer({x[0], x[1]}) : llama_layer({x[0], x[1]});
    return {result.x, result.residual};
  });
  in_layer_ = in_mlp_ = false;
  sizes_.stream = out.back()->elements();
  return out.size() == 1 ? Stream{nullptr, out[0]} : Stream{out[0], out[1]};
}

PassTensorPtr Walk::finish(const Stream& in) {
  switch (m_.kind) {
    case Architecture::kGpt2: return norm("transformer.ln_f", in.x, in.residual, kHidden)[0];
    case Architecture::kLlama: return norm("model.norm", in.x, in.residual, kHidden)[0];
    case Architecture::kBert: break;
  }
  const std::string transform = "cls.predictions.transform.";
  const PassTensorPtr dense =
      linear(transform + "dense", in.residual, {"", "output of the transform"});
  return norm(transform + "LayerNorm", op(OpId::kUnary, {dense}, {}, dense->label), nullptr,
              kHidden)[0];
}

void Walk::loss(const PassTensorPtr& hidden, ModelPass& result) {
  const bool bert = m_.kind == Architecture::kBert;
  const std::string name = bert ? "cls.predictions" : "lm_head";
  const char* table = bert                             ? "bert.embeddings.word_embeddings"
                      : m_.kind == Architecture::kGpt2 ? "transformer.wte"
                                                       : "model.embed_tokens";
  const PassTensorPtr weight =
      m_.tied ? parameter(table, "weight") : parameter(name, bert ? "decoder.weight" : "weight");
  const PassTensorPtr labels = pass_.input(pass_.whole({batch_, sequence_}), {"", "labels"}, false);
  PassTensorPtr sum;
  call(name, {hidden}, [&](const Tensors& in) -> Tensors {
    const PassResult r =
        pass_.run(OpId::kLinearCrossEntropy, {in[0], weight, parameter(name, "bias"), labels}, {},
                  {{"", "loss"}});
    result.hidden = numel(r.inputs[0].local);
    result.vocab = r.inputs[1].local[0];
    // Over a sharded vocabulary: what each rank knows of each token's loss, two floats.
    const std::int64_t own = 2 * (result.hidden / m_.hidden);
    if (r.decision.has(MeshRole::kVocabulary) && pass_.dims().parts() > 1)
      pass_.note({.kind = CollectiveKind::kAllGather,
                  .label = {"", "loss"},
                  .elements = own * pass_.dims().parts(),
                  .own = own,
                  .element_bytes = 4});
    sum = r.outputs[0];
    return {};
  });
  const ArgumentRule whole{.desired = Placements{Placement::replicate()}};
  pass_.apply(whole, sum);
}

ModelPass Walk::run() {
  ModelPass result;
  Stream stream{nullptr, embed()};
  result.before = pass_.take();
  for (std::int64_t i = 0; i < m_.layers; ++i) {
    const SpecPtr x = stream.x ? stream.x->spec : nullptr, residual = stream.residual->spec;
    stream = layer(stream);
    // A layer that gives what it takes stands for all that follow.
    const bool alike =
        i > 0 && *stream.residual->spec == *residual && (!x || *stream.x->spec == *x);
    const std::int64_t layers = alike ? m_.layers - i : 1;
    result.layers.push_back({layers, pass_.take()});
    if (alike) break;
  }
  result.layer = sizes_;
  loss(finish(stream), result);
  result.after = pass_.take();
  return result;
}

}  // namespace

ModelPass model_pass(const ModelShape& model, const StyledModel& styled, std::int64_t batch,
                     std::int64_t sequence) {
  return Walk(model, styled, batch, sequence).run();
}

}  // namespace meshloom::planner
