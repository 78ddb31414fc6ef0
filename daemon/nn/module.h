// SPDX-License-Identifier: Apache-2.0
// Module: a named tree of parameters. Subclasses add a forward of their own, which hooks may
// surround.
#pragma once

#include <array>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "daemon/tensor/tensor.h"
#include "kernels/base/philox.h"
#include "planner/plan/feature_sharding.h"

namespace meshloom::nn {

using planner::FeatureSharding;
using planner::FeatureUnits;

/// A parameter gets its first values by this rule: by position from (seed, stream of its name), the
/// same on every mesh.
struct Init {
  enum class Kind { kZeros, kOnes, kNormal } kind = Kind::kZeros;
  float std = 0.02f;
  std::int64_t zero_row = -1;  ///< kNormal: this row is zero (the padding token's embedding)
};

struct Parameter {
  /// Leaf, compute dtype. Made within a DeferParametersGuard it has a shape but no memory yet.
  Tensor value;
  Init init;
};

/// NamedParameter is a parameter with its full name ("transformer.h.0.attn.c_attn.weight": Hugging
/// Face's).
struct NamedParameter {
  std::string name;
  Parameter* parameter;
};

class Module;

/// Modules on the residual stream take these inputs.
inline constexpr std::array<std::string_view, 2> kStreamInputs = {"input", "residual"};

/// NamedModule is a module with its full name; the root's is "".
struct NamedModule {
  std::string name;
  Module* module;
};

/// A hook acts around a module's forward, on layouts or by gathering parameters. Either may be
/// empty, and both run again when a checkpointed segment is computed again.
struct ForwardHook {
  /// Given the tensors that the module was called with (undefined if left out); may replace
  /// them.
  std::function<void(std::span<Tensor> inputs)> before;
  /// Given the tensors that the forward made; may replace them.
  std::function<void(std::span<Tensor> outputs)> after;
};

/// Owns its parameters and holds children by reference (they are members of the subclass). Not
/// copyable: children's addresses are kept.
class Module {
 public:
  explicit Module(ExecutionContext& context) : context_(context) {}
  virtual ~Module() = default;
  Module(const Module&) = delete;
  Module& operator=(const Module&) = delete;

  ExecutionContext& context() const { return context_; }
  /// Returns all parameters of the tree in order of registration, names joined by dots.
  std::vector<NamedParameter> named_parameters();
  /// This module (as "") and all below it, parents first, in order of registration. A child that
  /// was registered under a name with dots has no modules in between.
  std::vector<NamedModule> named_modules();
  /// This module's own parameters, without those of its children.
  std::vector<NamedParameter> own_parameters();

  /// Hooks run in the order they were added, before and after the forward alike.
  void add_hook(ForwardHook hook) { hooks_.push_back(std::move(hook)); }
  /// Names of the tensors that hooks are given, in their order ("input"); they live for ever.
  virtual std::span<const std::string_view> input_names() const {
    static constexpr std::string_view kNames[] = {"input"};
    return kNames;
  }

  // --- How the module can be spread over ranks; nullopt: it cannot.
  /// Each rank computes a part of the output features.
  virtual std::optional<FeatureSharding> column_sharding() const { return std::nullopt; }
  /// Each rank holds a part of the input features (of a table: of the rows), and outputs are sums
  /// over ranks.
  virtual std::optional<FeatureSharding> row_sharding() const { return std::nullopt; }
  /// Tells whether outputs at a position depend on that position's inputs alone, so a sequence may
  /// be sharded.
  virtual bool positionwise() const { return false; }

 protected:
  Parameter& register_parameter(const std::string& name, const Shape& shape, DType dtype,
                                Init init);
  void register_module(const std::string& name, Module& child);

  /// Runs forward(inputs), which returns an array of tensors, between the hooks. What a subclass's
  /// call operator is made of.
  template <std::size_t N, typename Forward>
  auto call(std::array<Tensor, N> inputs, Forward&& forward) const {
    if (hooks_.empty()) return forward(inputs);
    for (const ForwardHook& hook : hooks_)
      if (hook.before) hook.before(inputs);
    auto outputs = forward(inputs);
    for (const ForwardHook& hook : hooks_)
      if (hook.after) hook.after(outputs);
    return outputs;
  }
  /// Calls `forward` between the hooks with one tensor in and one out.
  template <typename Forward>
  Tensor call(const Tensor& input, Forward&& forward) const {
    if (hooks_.empty()) return forward(input);
    const auto one = [&](std::array<Tensor, 1>& in) { return std::array{forward(in[0])}; };
    return call(std::array{input}, one)[0];
  }

 private:
  void collect(const std::string& prefix, std::vector<NamedParameter>& out);
  void collect(const std::string& name, std::vector<NamedModule>& out);

  ExecutionContext& context_;
  // Entry holds parameters and children in the order they were registered.
  struct Entry {
    std::string name;
    std::unique_ptr<Parameter> parameter;
    Module* child = nullptr;
  };
  std::vector<Entry> entries_;
  std::vector<ForwardHook> hooks_;
};

/// Fills every parameter as its Init says, from `seed` and its name.
void initialize_parameters(Module& module, std::uint64_t seed);
/// Returns the stream that the parameter `name` draws its first values from: element i takes value
/// i.
PhiloxStream parameter_stream(const std::string& name, std::uint64_t seed);
/// Fills in the values that the parameter `name` starts from, written into `dst` (contiguous, any
/// floating dtype: a float32 master gets what its bfloat16 copy is rounded from).
void initialize_tensor(const Tensor& dst, const std::string& name, const Init& init,
                       std::uint64_t seed);

}  // namespace meshloom::nn
