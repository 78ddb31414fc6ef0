// SPDX-License-Identifier: Apache-2.0
#include "tests/unit/dtensor/random_steps.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "daemon/tensor/ops/attention.h"
#include "daemon/tensor/ops/elementwise.h"
#include "daemon/tensor/ops/embedding.h"
#include "daemon/tensor/ops/loss.h"
#include "daemon/tensor/ops/matmul.h"
#include "daemon/tensor/ops/norm.h"
#include "daemon/tensor/ops/reduce.h"
#include "daemon/tensor/ops/shape.h"
#include "daemon/tensor/ops/softmax.h"

namespace meshloom::dtensor {

// --- Drawing

int ProgramBuilder::pick(int low, int high) {
  return low + static_cast<int>(rng_() % static_cast<std::uint64_t>(high - low + 1));
}

bool ProgramBuilder::chance(double probability) {
  return static_cast<double>(rng_() >> 11) * 0x1p-53 < probability;
}

Ref ProgramBuilder::leaf(const Shape& shape, double low, double high, DType dtype) {
  Leaf made{shape, {}, dtype, chance(0.8)};
  for (std::int64_t i = 0; i < numel(shape); ++i)
    made.values.push_back(low + (high - low) * static_cast<double>(rng_() >> 11) * 0x1p-53);
  if (dtype == DType::kFloat32)
    for (double& v : made.values) v = static_cast<float>(v);
  leaves_.push_back(made.make(context_));
  program_.leaves.push_back(std::move(made));
  return {Ref::Kind::kLeaf, leaves_.size() - 1};
}

Ref ProgramBuilder::ids(const Shape& shape, std::int64_t limit, std::int64_t ignored) {
  Leaf made{shape, {}, DType::kInt64, false};
  for (std::int64_t i = 0; i < numel(shape); ++i) {
    const bool ignore = i > 0 && ignored < 0 && chance(0.2);
    made.values.push_back(
        static_cast<double>(ignore ? ignored : pick(0, static_cast<int>(limit) - 1)));
  }
  leaves_.push_back(made.make(context_));
  program_.leaves.push_back(std::move(made));
  return {Ref::Kind::kLeaf, leaves_.size() - 1};
}

Ref ProgramBuilder::mask(const Shape& shape) {
  Leaf made{shape, {}, DType::kBool, false};
  for (std::int64_t i = 0; i < numel(shape); ++i) made.values.push_back(chance(0.5) ? 1.0 : 0.0);
  leaves_.push_back(made.make(context_));
  program_.leaves.push_back(std::move(made));
  return {Ref::Kind::kLeaf, leaves_.size() - 1};
}

Ref ProgramBuilder::some_result() {
  const std::size_t last = results_.size() - 1;
  return {Ref::Kind::kResult,
          chance(0.8) ? last : static_cast<std::size_t>(pick(0, static_cast<int>(last)))};
}

Shape ProgramBuilder::random_shape(int min_dims, int max_dims) {
  Shape shape;
  for (int i = pick(min_dims, max_dims); i > 0; --i)
    shape.push_back(chance(0.1) ? 1 : chance(0.1) ? pick(8, 13) : pick(2, 7));
  return shape;
}

Shape ProgramBuilder::broadcastable(const Shape& shape) {
  Shape result;
  const int skipped = chance(0.3) && !shape.empty() ? pick(0, shape.size()) : 0;
  for (int i = skipped; i < shape.size(); ++i) result.push_back(chance(0.2) ? 1 : shape[i]);
  return result;
}

const Tensor& ProgramBuilder::value(const Ref& ref) const {
  return ref.kind == Ref::Kind::kLeaf ? leaves_[ref.index] : results_[ref.index];
}

void ProgramBuilder::step(std::string text, std::vector<Ref> inputs,
                          std::function<Outputs(Inputs)> run) {
  std::vector<Tensor> given;
  for (const Ref& ref : inputs)
    given.push_back(ref.kind == Ref::Kind::kNone ? Tensor() : value(ref));
  for (Tensor& t : run(given)) results_.push_back(std::move(t));
  program_.steps.push_back({std::move(text), std::move(inputs), std::move(run)});
}

// --- First steps

void ProgramBuilder::start() {
  const int kind = pick(0, 9);
  if (kind == 0) return start_embedding();
  if (kind == 1) return start_attention();
  Shape shape = random_shape(0, 4);
  nothing_ = !shape.empty() && chance(0.05);
  if (nothing_) shape[random_dim(shape)] = 0;
  step("mul 0.75", {leaf(shape, 0.3, 1.7)},
       [](Inputs in) -> Outputs { return {ops::mul(in[0], 0.75)}; });
}

void ProgramBuilder::start_embedding() {
  const std::int64_t vocabulary = pick(1, 13);
  const Ref weight = leaf({vocabulary, pick(1, 7)});
  const std::int64_t padding = chance(0.5) ? pick(0, static_cast<int>(vocabulary) - 1) : -1;
  step(fmt::format("embedding padding {}", padding), {weight, ids(random_shape(0, 2), vocabulary)},
       [=](Inputs in) -> Outputs { return {ops::embedding(in[0], in[1], padding)}; });
}

void ProgramBuilder::start_attention() {
  program_.single_precision = true;
  const int kv_heads = pick(1, 4), group = chance(0.5) ? 1 : pick(2, 3);
  const std::int64_t batch = pick(1, 4), queries = pick(1, 6), keys = pick(1, 6);
  const std::int64_t heads = kv_heads * group, depth = 2 * pick(1, 4);
  ops::SdpaOptions options;
  options.enable_gqa = group > 1;
  options.is_causal = chance(0.5);
  options.alibi = chance(0.3);
  if (chance(0.3)) {
    options.dropout_p = 0.3f;
    options.dropout_random = {17, rng_()};
    options.dropout_first_head = pick(0, 5);
  }
  const bool rotated = chance(0.3);
  std::vector<Ref> inputs{leaf({batch, heads, queries, depth}, -1, 1, DType::kFloat32),
                          leaf({batch, kv_heads, keys, depth}, -1, 1, DType::kFloat32),
                          leaf({batch, kv_heads, keys, depth}, -1, 1, DType::kFloat32)};
  inputs.push_back(chance(0.3)
                       ? leaf(broadcastable({batch, heads, queries, keys}), -1, 1, DType::kFloat32)
                       : Ref());
  step(fmt::format("attention causal {} alibi {} dropout {} rotated {}", options.is_causal,
                   options.alibi, options.dropout_p, rotated),
       inputs, [=](Inputs in) -> Outputs {
         ops::SdpaOptions given = options;
         given.bias = in[3];
         Tensor q = in[0];
         if (rotated) {
           const Shape table{8, depth / 2};
           std::vector<float> cos, sin;
           for (std::int64_t i = 0; i < numel(table); ++i) {
             cos.push_back(std::cos(0.1f * static_cast<float>(i)));
             sin.push_back(std::sin(0.1f * static_cast<float>(i)));
           }
           q = ops::rope(q, from_values(q.context(), table, cos),
                         from_values(q.context(), table, sin), {}, 2);
         }
         return {ops::scaled_dot_product_attention(q, in[1], in[2], given).o};
       });
}

void ProgramBuilder::add_step() {
  const Ref x = some_result();
  if (value(x).numel() > 2000) return;
  if (chance(0.15)) return relayout(x);
  if (nothing_) {
    switch (pick(0, 5)) {
      case 0: return unary(x);
      case 1: return binary(x);
      case 2: return masked(x);
      case 3: return linear_layer(x);
      default: return view(x);
    }
  }
  switch (pick(0, 11)) {
    case 0: return unary(x);
    case 1:
    case 2: return binary(x);
    case 3: return masked(x);
    case 4: return reduction(x);
    case 5: return rows(x);
    case 6: return product(x);
    case 7: return linear_layer(x);
    case 8: return view(x);
    case 9: return regroup(x);
    case 10: return pieces(x);
    default: return chance(0.5) ? loss(x) : linear_loss(x);
  }
}

// --- Steps

void ProgramBuilder::unary(const Ref& x) {
  using Fn = Tensor (*)(const Tensor&);
  static const std::vector<std::pair<const char*, Fn>> kOps = {
      {"tanh", ops::tanh},
      {"sigmoid", ops::sigmoid},
      {"silu", ops::silu},
      {"neg", ops::neg},
      {"contiguous", ops::contiguous},
      {"gelu", [](const Tensor& t) { return ops::gelu(t, true); }},
      {"mul 1.5", [](const Tensor& t) { return ops::mul(t, 1.5); }},
      {"add 0.5", [](const Tensor& t) { return ops::add(t, 0.5); }},
      {"3 - x", [](const Tensor& t) { return ops::sub(3.0, t); }},
      {"exp(sigmoid)", [](const Tensor& t) { return ops::exp(ops::sigmoid(t)); }},
      {"dropout",
       [](const Tensor& t) {
         return ops::dropout(t, 0.4f, {7, 9}, 11);
       }},
  };
  const auto& [name, op] =
      kOps[static_cast<std::size_t>(pick(0, static_cast<int>(kOps.size()) - 1))];
  step(name, {x}, [op = op](Inputs in) -> Outputs { return {op(in[0])}; });
}

void ProgramBuilder::binary(const Ref& x) {
  const DType dtype = value(x).dtype();
  Ref other = leaf(broadcastable(shape_of(x)), 0.5, 2.0, dtype);
  const Ref result = some_result();
  const bool twice =
      chance(0.3) && shape_of(result) == shape_of(x) && value(result).dtype() == dtype;
  const int kind = pick(0, 4);
  if (twice && kind != 3) other = result;
  const bool swapped = chance(0.5) && kind != 3;
  const std::vector<Ref> inputs = swapped ? std::vector<Ref>{other, x} : std::vector<Ref>{x, other};
  static const char* const kNames[] = {"add", "sub", "mul", "div", "swiglu"};
  const bool same = shape_of(other) == shape_of(x);
  step(kNames[kind], inputs, [=](Inputs in) -> Outputs {
    switch (kind) {
      case 0: return {ops::add(in[0], in[1])};
      case 1: return {ops::sub(in[0], in[1])};
      case 3: return {ops::div(in[0], in[1])};
      case 4:
        if (same) return {ops::swiglu(in[0], in[1])};
        [[fallthrough]];
      default: return {ops::mul(in[0], in[1])};
    }
  });
}

void ProgramBuilder::masked(const Ref& x) {
  const DType dtype = value(x).dtype();
  if (chance(0.4) && shape_of(x).size() >= 2) {
    const std::int64_t diagonal = pick(-2, 2);
    const bool upper = chance(0.5);
    return step(fmt::format("{} {}", upper ? "triu" : "tril", diagonal), {x},
                [=](Inputs in) -> Outputs {
                  return {upper ? ops::triu(in[0], diagonal) : ops::tril(in[0], diagonal)};
                });
  }
  const Ref m = mask(broadcastable(shape_of(x)));
  if (chance(0.5))
    return step("masked_fill", {x, m},
                [](Inputs in) -> Outputs { return {ops::masked_fill(in[0], in[1], 0.25)}; });
  step("where", {m, x, leaf(broadcastable(shape_of(x)), -1, 1, dtype)},
       [](Inputs in) -> Outputs { return {ops::where(in[0], in[1], in[2])}; });
}

void ProgramBuilder::reduction(const Ref& x) {
  Dims dims;
  for (int d = 0; d < shape_of(x).size(); ++d)
    if (chance(0.4)) dims.push_back(chance(0.5) ? d : d - shape_of(x).size());
  const bool keepdim = chance(0.5);
  const int kind = pick(0, 3);
  static const char* const kNames[] = {"sum", "mean", "var", "amax"};
  step(fmt::format("{} {} keepdim {}", kNames[kind], to_string(dims), keepdim), {x},
       [=](Inputs in) -> Outputs {
         switch (kind) {
           case 0: return {ops::sum(in[0], dims, keepdim)};
           case 1: return {ops::mean(in[0], dims, keepdim)};
           case 2: return {ops::var(in[0], dims, 0.0, keepdim)};
           default: return {ops::amax(in[0], dims, keepdim)};
         }
       });
}

void ProgramBuilder::rows(const Ref& x) {
  const Shape shape = shape_of(x);
  if (shape.empty()) return;
  const DType dtype = value(x).dtype();
  const int kind = pick(0, 4);
  const std::int64_t dim = maybe_negative(random_dim(shape), shape.size());
  if (kind <= 1)
    return step(fmt::format("{} {}", kind == 0 ? "softmax" : "log_softmax", dim), {x},
                [=](Inputs in) -> Outputs {
                  return {kind == 0 ? ops::softmax(in[0], dim) : ops::log_softmax(in[0], dim)};
                });
  const int normalized = kind == 2 ? pick(1, shape.size()) : 1;
  Shape sizes;
  for (int i = shape.size() - normalized; i < shape.size(); ++i) sizes.push_back(shape[i]);
  const Ref weight = chance(0.8) ? leaf(sizes, 0.5, 1.5, dtype) : Ref();
  const Ref bias = chance(0.7) ? leaf(sizes, -1, 1, dtype) : Ref();
  if (kind == 2)
    return step(fmt::format("layer_norm {}", normalized), {x, weight, bias},
                [=](Inputs in) -> Outputs {
                  return {ops::layer_norm(in[0], in[1], in[2], 0.1f, normalized)};
                });
  if (kind == 3)
    return step("rms_norm", {x, weight},
                [](Inputs in) -> Outputs { return {ops::rms_norm(in[0], in[1], 0.1f)}; });
  step("add_layer_norm", {x, leaf(shape, -1, 1, dtype), weight, bias}, [](Inputs in) -> Outputs {
    ops::NormedSum both = ops::add_layer_norm(in[0], in[1], in[2], in[3], 0.1f);
    return {both.normed, both.sum};
  });
}

void ProgramBuilder::product(const Ref& x) {
  const Shape shape = shape_of(x);
  if (shape.empty()) return;
  const DType dtype = value(x).dtype();
  const std::int64_t inner = shape.back(), columns = pick(1, 7);
  if (shape.size() == 2 && chance(0.3))
    return step("addmm",
                {leaf(broadcastable({shape[0], columns}), -1, 1, dtype), x,
                 leaf({inner, columns}, -1, 1, dtype)},
                [](Inputs in) -> Outputs { return {ops::addmm(in[0], in[1], in[2])}; });
  if (shape.size() == 3 && chance(0.4))
    return step("bmm", {x, leaf({shape[0], inner, columns}, -1, 1, dtype)},
                [](Inputs in) -> Outputs { return {ops::bmm(in[0], in[1])}; });
  Shape other{inner, columns};
  if (chance(0.2)) other = {inner};
  if (shape.size() > 2 && other.size() == 2 && chance(0.4))
    for (int i = shape.size() - 3; i >= 0; --i) other.insert(0, chance(0.3) ? 1 : shape[i]);
  step("matmul", {x, leaf(other, -1, 1, dtype)},
       [](Inputs in) -> Outputs { return {ops::matmul(in[0], in[1])}; });
}

void ProgramBuilder::linear_layer(const Ref& x) {
  const Shape shape = shape_of(x);
  if (shape.empty()) return;
  const DType dtype = value(x).dtype();
  const std::int64_t in_size = shape.back(), out_size = pick(1, 9);
  ops::LinearOptions options;
  options.weight_is_in_out = chance(0.5);
  if (chance(0.3)) options.input_activation = ops::Activation::kGeluTanh;
  const Shape weight =
      options.weight_is_in_out ? Shape{in_size, out_size} : Shape{out_size, in_size};
  step(fmt::format("linear in_out {} activation {}", options.weight_is_in_out,
                   static_cast<int>(options.input_activation)),
       {x, leaf(weight, -1, 1, dtype), chance(0.6) ? leaf({out_size}, -1, 1, dtype) : Ref()},
       [=](Inputs in) -> Outputs { return {ops::linear(in[0], in[1], in[2], options)}; });
}

void ProgramBuilder::view(const Ref& x) {
  const Shape shape = shape_of(x);
  if (shape.empty()) return;
  const int kind = pick(0, 4);
  const std::int64_t a = maybe_negative(random_dim(shape), shape.size());
  const std::int64_t b = maybe_negative(random_dim(shape), shape.size());
  if (kind == 0)
    return step(fmt::format("transpose {} {}", a, b), {x},
                [=](Inputs in) -> Outputs { return {ops::transpose(in[0], a, b)}; });
  if (kind == 1) {
    std::vector<std::int64_t> order(static_cast<std::size_t>(shape.size()));
    std::iota(order.begin(), order.end(), 0);
    std::shuffle(order.begin(), order.end(), rng_);
    for (std::int64_t& d : order) d = maybe_negative(d, shape.size());
    const Dims dims{std::span<const std::int64_t>(order)};
    return step(fmt::format("permute {}", to_string(dims)), {x},
                [=](Inputs in) -> Outputs { return {ops::permute(in[0], dims)}; });
  }
  if (kind == 2 && shape.size() < 5)
    return step(fmt::format("unsqueeze {}", a), {x},
                [=](Inputs in) -> Outputs { return {ops::unsqueeze(in[0], a)}; });
  if (kind == 3)
    return step(fmt::format("squeeze {}", a), {x},
                [=](Inputs in) -> Outputs { return {ops::squeeze(in[0], a)}; });
  if (shape.size() > 4) return;
  Shape wide = shape;
  for (int i = 0; i < wide.size(); ++i)
    if (wide[i] == 1) wide[i] = pick(1, 5);
  if (chance(0.5)) wide.insert(0, pick(1, 4));
  step(fmt::format("expand {}", to_string(wide)), {x},
       [=](Inputs in) -> Outputs { return {ops::expand(in[0], wide)}; });
}

void ProgramBuilder::regroup(const Ref& x) {
  Shape shape = shape_of(x);
  for (int i = pick(1, 2); i > 0; --i) {
    if (shape.size() >= 2 && chance(0.5)) {
      const int at = pick(0, shape.size() - 2);
      const std::int64_t merged = shape[at] * shape[at + 1];
      shape.erase(at + 1);
      shape[at] = merged;
      continue;
    }
    if (shape.empty() || shape.size() > 4) continue;
    const int at = random_dim(shape);
    std::vector<std::int64_t> divisors;
    for (std::int64_t d = 1; d <= shape[at]; ++d)
      if (shape[at] % d == 0) divisors.push_back(d);
    const std::int64_t inner =
        divisors[static_cast<std::size_t>(pick(0, static_cast<int>(divisors.size()) - 1))];
    shape[at] /= inner;
    shape.insert(at + 1, inner);
  }
  step(fmt::format("reshape {}", to_string(shape)), {x},
       [=](Inputs in) -> Outputs { return {ops::reshape(in[0], shape)}; });
}

void ProgramBuilder::pieces(const Ref& x) {
  const Shape shape = shape_of(x);
  if (shape.empty()) return;
  const int at = random_dim(shape);
  const std::int64_t dim = maybe_negative(at, shape.size());
  const auto size = static_cast<int>(shape[at]);
  const int kind = pick(0, 2);
  if (kind == 0) {
    const std::int64_t start = pick(0, size - 1), end = pick(static_cast<int>(start) + 1, size + 2);
    const std::int64_t stride = pick(1, 3);
    return step(fmt::format("slice {} {}:{}:{}", dim, start, end, stride), {x},
                [=](Inputs in) -> Outputs { return {ops::slice(in[0], dim, start, end, stride)}; });
  }
  if (kind == 1) {
    const std::int64_t piece = pick(1, size + 1);
    return step(fmt::format("split {} {}", piece, dim), {x},
                [=](Inputs in) -> Outputs { return ops::split(in[0], piece, dim); });
  }
  Shape other = shape;
  other[at] = pick(1, 5);
  step(fmt::format("cat {}", dim), {x, leaf(other, -1, 1, value(x).dtype())},
       [=](Inputs in) -> Outputs {
         return {ops::cat({in[0], in[1]}, dim)};
       });
}

void ProgramBuilder::loss(const Ref& x) {
  const Shape shape = shape_of(x);
  if (shape.empty()) return;
  program_.single_precision = true;
  const int class_dim = shape.size() == 1 ? 0 : 1;
  Shape rows = shape;
  rows.erase(class_dim);
  ops::CrossEntropyOptions options;
  options.ignore_index = chance(0.5) ? -100 : -1;
  options.label_smoothing = chance(0.4) ? 0.2f : 0.0f;
  options.reduction = static_cast<ops::Reduction>(pick(0, 2));
  step(fmt::format("cross_entropy reduction {} smoothing {}", static_cast<int>(options.reduction),
                   options.label_smoothing),
       {x, ids(rows, shape[class_dim], options.ignore_index)},
       [=](Inputs in) -> Outputs { return {ops::cross_entropy(in[0], in[1], options)}; });
}

void ProgramBuilder::linear_loss(const Ref& x) {
  const Shape shape = shape_of(x);
  if (shape.empty()) return;
  program_.single_precision = true;
  program_.chunked = true;
  const DType dtype = value(x).dtype();
  Shape rows = shape;
  rows.erase(rows.size() - 1);
  const std::int64_t vocabulary = pick(1, 13);
  ops::LinearCrossEntropyOptions options;
  options.grad_scale = 0.25f;
  const Ref weight = leaf({vocabulary, shape.back()}, -1, 1, dtype);
  const Ref bias = chance(0.5) ? leaf({vocabulary}, -1, 1, dtype) : Ref();
  const int kind = pick(0, 3);
  Shape targets = rows;
  if (kind == 1) targets.push_back(pick(1, 3));
  const Ref labels = ids(targets, vocabulary, -100);
  if (kind <= 1) {
    step("linear_token_losses", {x, weight, bias, labels}, [](Inputs in) -> Outputs {
      return {ops::linear_token_losses(in[0], in[1], in[2], in[3])};
    });
  } else if (kind == 2) {
    const DType sums = dtype == DType::kFloat64 ? dtype : DType::kFloat32;
    step(
        "weighted_linear_cross_entropy", {x, weight, bias, labels, ids(rows, 5)},
        [=](Inputs in) -> Outputs {
          const Tensor weights = ops::sub(ops::mul(ops::cast(in[4], sums), 0.5), 0.75);
          return {
              ops::weighted_linear_cross_entropy(in[0], in[1], in[2], in[3], weights, options).sum};
        });
  } else {
    step("linear_cross_entropy", {x, weight, bias, labels}, [=](Inputs in) -> Outputs {
      return {ops::linear_cross_entropy(in[0], in[1], in[2], in[3], options)};
    });
  }
  ended_ = true;
}

Program ProgramBuilder::finish() {
  program_.outputs.push_back(results_.size() - 1);
  if (!ended_ && results_.size() > 1 && chance(0.3))
    program_.outputs.push_back(
        static_cast<std::size_t>(pick(0, static_cast<int>(results_.size()) - 2)));
  for (const std::size_t output : program_.outputs) {
    std::vector<double> grads;
    for (std::int64_t i = 0; i < results_[output].numel(); ++i)
      grads.push_back(ended_ ? 1.0 : -1.0 + 2.0 * static_cast<double>(rng_() >> 11) * 0x1p-53);
    program_.output_grads.push_back(std::move(grads));
  }
  return std::move(program_);
}

}  // namespace meshloom::dtensor
