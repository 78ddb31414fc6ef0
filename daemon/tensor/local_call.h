// SPDX-License-Identifier: Apache-2.0
// LocalCall: what an op is given when it runs on the local tensors of a rank.
#pragma once

#include <functional>
#include <span>
#include <type_traits>
#include <typeinfo>
#include <vector>

#include "daemon/tensor/collectives.h"
#include "daemon/tensor/tensor.h"
#include "kernels/base/error.h"
#include "planner/sharding/propagate.h"

namespace meshloom {

/// OpOptions is a reference to the options that an op was called with, of the op's own type
/// (LinearOptions, SdpaOptions, kernels::UnaryOp), which outlive it.
class OpOptions {
 public:
  OpOptions() = default;
  template <typename T>
  explicit OpOptions(const T& options) : options_(&options), type_(&typeid(T)) {}
  template <typename T>
  const T& as() const {
    const T* options = find<T>();
    check_internal(options != nullptr, "an op has options of another type");
    return *options;
  }
  /// Returns the options; null if the op has no options, or of another type.
  template <typename T>
  const T* find() const {
    return type_ != nullptr && *type_ == typeid(T) ? static_cast<const T*>(options_) : nullptr;
  }

 private:
  const void* options_ = nullptr;
  const std::type_info* type_ = nullptr;
};

struct LocalCall {
  std::span<const Tensor> inputs;  ///< local tensors, undefined if left out
  const planner::OpAttributes& attributes;
  OpOptions options;
  const planner::ShardingDecision& decision;
  /// These are the parts that this rank holds of each input, after redistribution; empty if it was
  /// left out.
  std::span<const planner::LocalPart> parts;
  std::span<const int> coordinates;  ///< of this rank in the mesh
  Collectives& collectives;          ///< outlives what the op records for backward
};

/// DistributedOp is an implementation of an op for mesh dims with roles, one per op. It gets local
/// tensors, gives the local tensors of the decision's outputs, and records their gradient as the
/// decision says. Every rank of the mesh runs it.
struct DistributedOp {
  planner::OpId op;
  planner::RoleSet roles;  ///< all of the roles that it can run with
  std::function<std::vector<Tensor>(const LocalCall&)> run;
  /// It uses the collectives, over the mesh dims of its roles.
  bool communicates = false;
};

/// LocalOp is a reference to the callable that runs an op on local tensors: it must outlive the
/// call.
class LocalOp {
 public:
  template <typename F, typename = std::enable_if_t<!std::is_same_v<std::decay_t<F>, LocalOp>>>
  LocalOp(const F& op)  // NOLINT: implicit, as a lambda is passed
      : op_(&op), call_([](const void* f, const LocalCall& c) -> std::vector<Tensor> {
          return (*static_cast<const F*>(f))(c);
        }) {}
  std::vector<Tensor> operator()(const LocalCall& call) const { return call_(op_, call); }

 private:
  const void* op_;
  std::vector<Tensor> (*call_)(const void*, const LocalCall&);
};

}  // namespace meshloom
