// SPDX-License-Identifier: Apache-2.0
// Products of linear layers with layouts that gather their input, or sum and scatter their result,
// on the way (comm/symm_mem/fused), in the place of a collective and a product.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "daemon/comm/symm_mem/symmetric_group.h"
#include "daemon/nn/modules/linear.h"
#include "daemon/parallel/tensor_parallel/boundary.h"
#include "planner/plan/fusion.h"

namespace meshloom::parallel {

/// FusedGroup is the symmetric memory of the ranks that styles act along. Both outlive what is
/// fused over them.
class FusedGroup {
 public:
  explicit FusedGroup(comm::ProcessGroup& group) : group_(group) {}
  ~FusedGroup();
  FusedGroup(const FusedGroup&) = delete;
  FusedGroup& operator=(const FusedGroup&) = delete;

  /// Every rank of the group calls it. Empty, or on all ranks why they do not share memory.
  std::string enable();
  /// Tells whether enable() was called, and gave nothing to say.
  bool is_enabled() const { return symmetric_ != nullptr; }
  /// Returns the group's memory; it is there if is_enabled().
  comm::SymmetricGroup& symmetric() { return *symmetric_; }

 private:
  comm::ProcessGroup& group_;
  std::shared_ptr<comm::SymmetricMemory> memory_;
  comm::SymmetricGroup* symmetric_ = nullptr;
  bool own_ = false;  ///< nobody had enabled it before
};

struct FusedSettings {
  FusedGroup& group;
  bool by_table = false;  ///< calls of other sizes make the collective and the product apart
  bool gather_again = false;
};

/// GatheringLinears computes one rank's products of a gathered input with the weights of several
/// layers, in one gather. Each layer is called once with the same tensor, in any order; the first
/// call makes all products. Inputs in another layout than sharded along `dim` alone go the way of
/// the layer's border.
class GatheringLinears {
 public:
  GatheringLinears(const StyleMesh& mesh, const FusedSettings& settings, int dim);
  /// Adds a layer with its border, in the order of `product`'s numbers.
  void add(const nn::Linear& linear, Boundary border);

  Tensor product(std::size_t layer, const Tensor& input, ops::Activation activation);

 private:
  struct Layer {
    const nn::Linear* linear;
    Boundary border;
    Tensor product;  ///< of input_, until it is taken
  };
  bool fuses(const Tensor& x) const;
  void multiply(const Tensor& x);

  StyleMesh mesh_;
  FusedSettings settings_;
  int dim_;
  std::vector<Layer> layers_;
  Tensor input_;  ///< of products that were not taken yet
};

/// ScatteringLinear computes the summed and scattered product of a layer sharded by input features,
/// its bias added once.
class ScatteringLinear {
 public:
  ScatteringLinear(const StyleMesh& mesh, const FusedSettings& settings, const nn::Linear& linear,
                   int dim)
      : mesh_(mesh), settings_(settings), linear_(linear), dim_(dim) {}

  Tensor product(const Tensor& input, ops::Activation activation);

 private:
  bool fuses(const Tensor& x) const;

  StyleMesh mesh_;
  FusedSettings settings_;
  const nn::Linear& linear_;
  int dim_;
};

}  // namespace meshloom::parallel
