// SPDX-License-Identifier: Apache-2.0
// Module: a named tree of parameters. Subclasses add a forward of their own.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "daemon/tensor/tensor.h"

namespace meshloom::nn {

/// How a parameter gets its first values: by position from (seed, stream of its name), the same on
/// every mesh.
struct Init {
  enum class Kind { kZeros, kOnes, kNormal } kind = Kind::kZeros;
  float std = 0.02f;
  std::int64_t zero_row = -1;  ///< kNormal: this row is zero (the padding token's embedding)
};

struct Parameter {
  Tensor value;  ///< leaf, compute dtype
  Init init;
};

/// A parameter with its full name ("transformer.h.0.attn.c_attn.weight": Hugging Face's).
struct NamedParameter {
  std::string name;
  Parameter* parameter;
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
  /// All parameters of the tree in order of registration, names joined by dots.
  std::vector<NamedParameter> named_parameters();

 protected:
  Parameter& register_parameter(const std::string& name, const Shape& shape, DType dtype,
                                Init init);
  void register_module(const std::string& name, Module& child);

 private:
  void collect(const std::string& prefix, std::vector<NamedParameter>& out);

  ExecutionContext& context_;
  // Parameters and children in the order they were registered.
  struct Entry {
    std::string name;
    std::unique_ptr<Parameter> parameter;
    Module* child = nullptr;
  };
  std::vector<Entry> entries_;
};

/// Fills every parameter as its Init says, from `seed` and its name.
void initialize_parameters(Module& module, std::uint64_t seed);
/// The values that the parameter `name` starts from, written into `dst` (contiguous, any floating
/// dtype: a float32 master gets what its bfloat16 copy is rounded from).
void initialize_tensor(const Tensor& dst, const std::string& name, const Init& init,
                       std::uint64_t seed);

}  // namespace meshloom::nn
