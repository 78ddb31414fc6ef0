// SPDX-License-Identifier: Apache-2.0
#include "tests/conformance/op_table.h"

#include <algorithm>
#include <limits>

#include "daemon/tensor/ops/elementwise.h"
#include "daemon/tensor/ops/embedding.h"
#include "daemon/tensor/ops/loss.h"
#include "daemon/tensor/ops/matmul.h"
#include "daemon/tensor/ops/norm.h"
#include "daemon/tensor/ops/reduce.h"
#include "daemon/tensor/ops/shape.h"
#include "daemon/tensor/ops/softmax.h"
#include "kernels/base/error.h"

namespace meshloom::conformance {
namespace {

using Operands = std::span<const Operand>;
using Outputs = std::vector<Tensor>;

Tensor tensor_or_none(Operands in, std::size_t i) {
  return i < in.size() ? in[i].tensor : Tensor();
}

template <Tensor (*Op)(const Tensor&)>
BoundOp bind_unary(ObjectReader&) {
  return [](Operands in) -> Outputs { return {Op(in[0].tensor)}; };
}

template <typename Fn>
BoundOp of_first(Fn fn) {
  return [fn](Operands in) -> Outputs { return {fn(in[0].tensor)}; };
}

template <typename Fn>
BoundOp binary_op(const char* name, Fn fn) {
  return [name, fn](Operands in) -> Outputs {
    check(in[0].tensor.defined() || in[1].tensor.defined(), "{}: both inputs are numbers", name);
    if (!in[0].tensor) return {fn(in[0].number, in[1].tensor)};
    if (!in[1].tensor) return {fn(in[0].tensor, in[1].number)};
    return {fn(in[0].tensor, in[1].tensor)};
  };
}

// Addition and multiplication with the number on either side.
struct Add {
  Tensor operator()(const Tensor& a, const Tensor& b) const { return ops::add(a, b); }
  Tensor operator()(const Tensor& a, double b) const { return ops::add(a, b); }
  Tensor operator()(double a, const Tensor& b) const { return ops::add(b, a); }
};
struct Mul {
  Tensor operator()(const Tensor& a, const Tensor& b) const { return ops::mul(a, b); }
  Tensor operator()(const Tensor& a, double b) const { return ops::mul(a, b); }
  Tensor operator()(double a, const Tensor& b) const { return ops::mul(b, a); }
};

BoundOp bind_add(ObjectReader&) { return binary_op("add", Add()); }
BoundOp bind_mul(ObjectReader&) { return binary_op("mul", Mul()); }
BoundOp bind_sub(ObjectReader&) {
  return binary_op("sub", [](const auto& a, const auto& b) { return ops::sub(a, b); });
}
BoundOp bind_div(ObjectReader&) {
  return binary_op("div", [](const auto& a, const auto& b) { return ops::div(a, b); });
}

BoundOp bind_pow(ObjectReader& attributes) {
  return of_first([exponent = attributes.number("exponent")](const Tensor& x) {
    return ops::pow(x, exponent);
  });
}

BoundOp bind_gelu(ObjectReader& attributes) {
  const std::string approximate = attributes.string_or("approximate", "none");
  check(approximate == "none" || approximate == "tanh",
        "gelu: approximate is '{}', expected none or tanh", approximate);
  return of_first([tanh = approximate == "tanh"](const Tensor& x) { return ops::gelu(x, tanh); });
}

template <Tensor (*Op)(const Tensor&, const Tensor&)>
BoundOp bind_product(ObjectReader&) {
  return [](Operands in) -> Outputs { return {Op(in[0].tensor, in[1].tensor)}; };
}

BoundOp bind_linear(ObjectReader&) {
  return [](Operands in) -> Outputs {
    return {ops::linear(in[0].tensor, in[1].tensor, tensor_or_none(in, 2))};
  };
}

BoundOp bind_addmm(ObjectReader&) {
  return
      [](Operands in) -> Outputs { return {ops::addmm(in[0].tensor, in[1].tensor, in[2].tensor)}; };
}

Dims to_dims(const std::vector<std::int64_t>& values) { return Dims(values); }

Dims read_dims(ObjectReader& attributes) {
  return attributes.has("dim") ? to_dims(attributes.integers("dim")) : Dims();
}

template <Tensor (*Op)(const Tensor&, const Dims&, bool)>
BoundOp bind_reduce(ObjectReader& attributes) {
  const Dims dims = read_dims(attributes);
  const bool keepdim = attributes.boolean_or("keepdim", false);
  return of_first([=](const Tensor& x) { return Op(x, dims, keepdim); });
}

BoundOp bind_var(ObjectReader& attributes) {
  const Dims dims = read_dims(attributes);
  const double correction = attributes.number_or("correction", 1.0);
  const bool keepdim = attributes.boolean_or("keepdim", false);
  return of_first([=](const Tensor& x) { return ops::var(x, dims, correction, keepdim); });
}

template <Tensor (*Op)(const Tensor&, std::int64_t)>
BoundOp bind_with_dim(ObjectReader& attributes) {
  return of_first([dim = attributes.integer("dim")](const Tensor& x) { return Op(x, dim); });
}

BoundOp bind_layer_norm(ObjectReader& attributes) {
  const Dims normalized = to_dims(attributes.integers("normalized_shape"));
  const double eps = attributes.number_or("eps", 1e-5);
  return [=](Operands in) -> Outputs {
    const Tensor& x = in[0].tensor;
    const int count = normalized.size();
    bool fits = count >= 1 && count <= x.ndim();
    for (int i = 1; fits && i <= count; ++i) fits = normalized[count - i] == x.size(-i);
    check(fits, "layer_norm: normalized_shape {} does not end the shape {}", to_string(normalized),
          to_string(x.shape()));
    return {ops::layer_norm(x, tensor_or_none(in, 1), tensor_or_none(in, 2), eps, count)};
  };
}

// torch's default is the smallest step of the input's dtype.
double smallest_step(DType dtype) {
  switch (dtype) {
    case DType::kFloat64: return std::numeric_limits<double>::epsilon();
    case DType::kBFloat16: return 0x1p-7;
    case DType::kFloat16: return 0x1p-10;
    default: return std::numeric_limits<float>::epsilon();
  }
}

BoundOp bind_rms_norm(ObjectReader& attributes) {
  const double eps = attributes.number_or("eps", -1.0);
  return [=](Operands in) -> Outputs {
    const Tensor& x = in[0].tensor;
    return {ops::rms_norm(x, tensor_or_none(in, 1), eps < 0.0 ? smallest_step(x.dtype()) : eps)};
  };
}

BoundOp bind_embedding(ObjectReader& attributes) {
  const bool has_padding = attributes.has("padding_idx");
  const std::int64_t given = has_padding ? attributes.integer("padding_idx") : 0;
  return [=](Operands in) -> Outputs {
    const Tensor& weight = in[0].tensor;
    std::int64_t padding = -1;
    if (has_padding) {
      check(weight.ndim() == 2, "embedding: weight of shape {}, expected [V,C]",
            to_string(weight.shape()));
      padding = given < 0 ? given + weight.size(0) : given;
      check(padding >= 0 && padding < weight.size(0),
            "embedding: padding_idx {} is outside a table of {} rows", given, weight.size(0));
    }
    return {ops::embedding(weight, in[1].tensor, padding)};
  };
}

BoundOp bind_cross_entropy(ObjectReader& attributes) {
  ops::CrossEntropyOptions options;
  options.ignore_index = attributes.integer_or("ignore_index", -100);
  options.label_smoothing = attributes.number_or("label_smoothing", 0.0);
  const std::string reduction = attributes.string_or("reduction", "mean");
  if (reduction == "none")
    options.reduction = ops::Reduction::kNone;
  else if (reduction == "sum")
    options.reduction = ops::Reduction::kSum;
  else
    check(reduction == "mean", "cross_entropy: reduction is '{}', expected none, mean or sum",
          reduction);
  return [options](Operands in) -> Outputs {
    return {ops::cross_entropy(in[0].tensor, in[1].tensor, options)};
  };
}

BoundOp bind_transpose(ObjectReader& attributes) {
  const std::int64_t dim0 = attributes.integer("dim0");
  const std::int64_t dim1 = attributes.integer("dim1");
  return of_first([=](const Tensor& x) { return ops::transpose(x, dim0, dim1); });
}

BoundOp bind_permute(ObjectReader& attributes) {
  return of_first([dims = to_dims(attributes.integers("dims"))](const Tensor& x) {
    return ops::permute(x, dims);
  });
}

template <Tensor (*Op)(const Tensor&, const Shape&)>
BoundOp bind_with_shape(ObjectReader& attributes) {
  return of_first(
      [shape = to_dims(attributes.integers("shape"))](const Tensor& x) { return Op(x, shape); });
}

BoundOp bind_slice(ObjectReader& attributes) {
  const std::int64_t dim = attributes.integer_or("dim", 0);
  const std::int64_t start = attributes.integer_or("start", 0);
  const std::int64_t end = attributes.integer_or("end", std::numeric_limits<std::int64_t>::max());
  const std::int64_t step = attributes.integer_or("step", 1);
  return of_first([=](const Tensor& x) { return ops::slice(x, dim, start, end, step); });
}

BoundOp bind_cat(ObjectReader& attributes) {
  return [dim = attributes.integer_or("dim", 0)](Operands in) -> Outputs {
    std::vector<Tensor> tensors;
    for (const Operand& o : in) tensors.push_back(o.tensor);
    return {ops::cat(tensors, dim)};
  };
}

BoundOp bind_split(ObjectReader& attributes) {
  const std::int64_t size = attributes.integer("split_size");
  const std::int64_t dim = attributes.integer_or("dim", 0);
  return [=](Operands in) { return ops::split(in[0].tensor, size, dim); };
}

BoundOp bind_where(ObjectReader&) {
  return
      [](Operands in) -> Outputs { return {ops::where(in[0].tensor, in[1].tensor, in[2].tensor)}; };
}

BoundOp bind_masked_fill(ObjectReader& attributes) {
  return [value = attributes.number("value")](Operands in) -> Outputs {
    return {ops::masked_fill(in[0].tensor, in[1].tensor, value)};
  };
}

template <Tensor (*Op)(const Tensor&, std::int64_t)>
BoundOp bind_triangle(ObjectReader& attributes) {
  return of_first([diagonal = attributes.integer_or("diagonal", 0)](const Tensor& x) {
    return Op(x, diagonal);
  });
}

constexpr OpEntry kOps[] = {
    {"add", "nn", bind_add},
    {"sub", "nn", bind_sub},
    {"mul", "nn", bind_mul},
    {"div", "nn", bind_div},
    {"neg", "f", bind_unary<ops::neg>},
    {"exp", "f", bind_unary<ops::exp>},
    {"log", "f", bind_unary<ops::log>},
    {"tanh", "f", bind_unary<ops::tanh>},
    {"sqrt", "f", bind_unary<ops::sqrt>},
    {"rsqrt", "f", bind_unary<ops::rsqrt>},
    {"pow", "f", bind_pow},
    {"relu", "f", bind_unary<ops::relu>},
    {"gelu", "f", bind_gelu},
    {"silu", "f", bind_unary<ops::silu>},
    {"sigmoid", "f", bind_unary<ops::sigmoid>},
    {"matmul", "ff", bind_product<ops::matmul>},
    {"bmm", "ff", bind_product<ops::bmm>},
    {"linear", "ff?f", bind_linear},
    {"addmm", "fff", bind_addmm},
    {"sum", "f", bind_reduce<ops::sum>},
    {"mean", "f", bind_reduce<ops::mean>},
    {"amax", "f", bind_reduce<ops::amax>},
    {"var", "f", bind_var},
    {"softmax", "f", bind_with_dim<ops::softmax>},
    {"log_softmax", "f", bind_with_dim<ops::log_softmax>},
    {"layer_norm", "f?ff", bind_layer_norm},
    {"rms_norm", "f?f", bind_rms_norm},
    {"embedding", "fi", bind_embedding},
    {"cross_entropy", "fi", bind_cross_entropy},
    {"transpose", "a", bind_transpose},
    {"permute", "a", bind_permute},
    {"reshape", "a", bind_with_shape<ops::reshape>},
    {"unsqueeze", "a", bind_with_dim<ops::unsqueeze>},
    {"squeeze", "a", bind_with_dim<ops::squeeze>},
    {"slice", "a", bind_slice},
    {"cat", "a*", bind_cat},
    {"split", "a", bind_split},
    {"where", "bff", bind_where},
    {"masked_fill", "fb", bind_masked_fill},
    {"expand", "a", bind_with_shape<ops::expand>},
    {"triu", "f", bind_triangle<ops::triu>},
    {"tril", "f", bind_triangle<ops::tril>},
};

bool fits(char letter, const std::optional<DType>& dtype) {
  if (!dtype) return letter == 'n';
  switch (letter) {
    case 'i': return *dtype == DType::kInt64;
    case 'b': return *dtype == DType::kBool;
    case 'a': return true;
    default: return dtype_is_floating(*dtype);
  }
}

const char* expected_dtype(char letter) {
  switch (letter) {
    case 'i': return "an int64 tensor";
    case 'b': return "a bool tensor";
    case 'n': return "a floating tensor or a number";
    case 'a': return "a tensor";
    default: return "a floating tensor";
  }
}

}  // namespace

const OpEntry& find_op(const std::string& name) {
  const auto* found = std::find_if(std::begin(kOps), std::end(kOps),
                                   [&](const OpEntry& e) { return e.name == name; });
  check(found != std::end(kOps), "unknown op '{}'", name);
  return *found;
}

void check_operands(const OpEntry& op, std::span<const std::optional<DType>> dtypes) {
  std::string letters;
  std::size_t required = 0;
  for (const char c : op.inputs) {
    if (c == '?' || c == '*') {
      required = letters.size();
      continue;
    }
    letters += c;
  }
  if (op.inputs.find('?') == std::string_view::npos) required = letters.size();
  if (op.inputs.back() == '*')
    letters.resize(std::max(letters.size(), dtypes.size()), letters.back());
  check(dtypes.size() >= required && dtypes.size() <= letters.size(),
        "{}: {} inputs given, expected {}{}", op.name, dtypes.size(), required,
        required == letters.size() ? "" : " or more");
  for (std::size_t i = 0; i < dtypes.size(); ++i)
    check(fits(letters[i], dtypes[i]), "{}: input {} is {}, expected {}", op.name, i,
          dtypes[i] ? dtype_name(*dtypes[i]) : "a number", expected_dtype(letters[i]));
}

}  // namespace meshloom::conformance
