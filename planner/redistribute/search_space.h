// SPDX-License-Identifier: Apache-2.0
// SearchSpace and LayoutState: a redistribution problem in the compact form that planners search.
//
// A state says for every mesh dim larger than 1 how it holds the tensor, and for every tensor dim
// which mesh dims shard it in which order. Mesh dims of size 1 cost nothing and are left out; "mesh
// dim" in this header means an index into those that are left.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "planner/dtensor_spec.h"
#include "planner/redistribute/plan.h"

namespace meshloom::planner {

/// Most mesh dims larger than 1 that a planner takes: a state must fit 64 bits.
inline constexpr int kMaxSearchDims = 7;

/// The code says what a mesh dim holds: R, one of four Partials, or a shard of a tensor dim.
using HoldCode = std::uint8_t;
inline constexpr HoldCode kHoldReplicate = 0;
constexpr HoldCode hold_partial(PartialOp op) {
  return static_cast<HoldCode>(1 + static_cast<int>(op));
}
constexpr HoldCode hold_shard(int tensor_dim) { return static_cast<HoldCode>(5 + tensor_dim); }
constexpr bool is_partial_code(HoldCode code) { return code >= 1 && code <= 4; }
constexpr bool is_shard_code(HoldCode code) { return code >= 5; }
constexpr int shard_dim_of(HoldCode code) { return code - 5; }

/// DimOrderChoice says which dim order the first sharding of a tensor dim follows.
enum class DimOrderChoice : std::uint8_t { kPlain, kFrom, kTo };

/// DimList is a short list of mesh dims, held in place.
class DimList {
 public:
  DimList() = default;
  explicit DimList(int dim) { push_back(dim); }

  int size() const { return size_; }
  bool empty() const { return size_ == 0; }
  int operator[](int i) const { return dims_[static_cast<std::size_t>(i)]; }
  void push_back(int dim) { dims_[size_++] = static_cast<std::uint8_t>(dim); }
  const std::uint8_t* begin() const { return dims_.data(); }
  const std::uint8_t* end() const { return dims_.data() + size_; }
  unsigned mask() const;

 private:
  std::array<std::uint8_t, kMaxSearchDims> dims_{};
  std::uint8_t size_ = 0;
};

/// LayoutState is one layout. Equal states have equal keys.
struct LayoutState {
  /// In `key`: 4 bits what a mesh dim holds, 3 its place among the mesh dims that shard its dim, 2
  /// the sharding order.
  static constexpr int kBitsPerDim = 9;

  std::array<HoldCode, kMaxSearchDims> hold{};
  std::array<DimOrderChoice, kMaxSearchDims> order{};
  /// By tensor dim: how many mesh dims shard it, and which, the outermost first.
  std::array<std::uint8_t, kMaxDims> shards{};
  std::array<std::array<std::uint8_t, kMaxSearchDims>, kMaxDims> sharding_dim{};
  /// By tensor dim: the same mesh dims as a mask.
  std::array<std::uint8_t, kMaxDims> shard_mask{};
  /// All of the above in 64 bits: kept up to date by the functions below.
  std::uint64_t key = 0;

  /// Returns the mesh dim that sharded `tensor_dim` last, or -1.
  int last_sharding_dim(int tensor_dim) const;
  bool is_last_sharding_dim(int mesh_dim) const;
  /// `mesh_dim`, which is no shard, holds R or a Partial from now on.
  void set_hold(int mesh_dim, HoldCode code);
  /// Adds `mesh_dim`, which is replicated so far, as the innermost sharding.
  void push_shard(int mesh_dim, int tensor_dim, DimOrderChoice order = DimOrderChoice::kPlain);
  /// Takes the innermost sharding off; `mesh_dim` is then replicated.
  void pop_shard(int mesh_dim);

  static LayoutState from_key(std::uint64_t key, int mesh_dims);
};

/// SearchSpace holds everything that is fixed while a plan is searched.
class SearchSpace {
 public:
  /// Both on one mesh, of one shape. Throws InvalidArgument if more than kMaxSearchDims mesh
  /// dims are larger than 1.
  SearchSpace(SpecPtr from, SpecPtr to);

  int dims() const { return dims_; }
  int size(int mesh_dim) const { return sizes_[static_cast<std::size_t>(mesh_dim)]; }
  /// Returns the index in the mesh.
  int mesh_dim(int dim) const { return mesh_dims_[static_cast<std::size_t>(dim)]; }
  const Shape& shape() const { return from_->shape(); }
  const MeshLayout& mesh() const { return from_->mesh(); }
  const LayoutState& start() const { return start_; }
  const LayoutState& goal() const { return goal_; }
  const SpecPtr& from() const { return from_; }
  const SpecPtr& to() const { return to_; }
  bool has_dim_orders() const { return has_dim_orders_; }
  /// Returns true if `mesh_dim` may shard `tensor_dim`, unsharded so far, by this order.
  bool offers(int mesh_dim, int tensor_dim, DimOrderChoice order) const;
  /// Tells whether `mesh_dim` may shard `tensor_dim` by this order beside the shardings of `state`,
  /// whose orders by rows may forbid it.
  bool offers(const LayoutState& state, int mesh_dim, int tensor_dim, DimOrderChoice order) const;

  /// Returns the number of elements of `tensor_dim` in the largest shard.
  std::int64_t local_size(const LayoutState& state, int tensor_dim) const {
    const auto d = static_cast<std::size_t>(tensor_dim);
    return has_dim_orders_ ? ordered_size(state, tensor_dim)
                           : plain_sizes_[(d << dims_) + state.shard_mask[d]];
  }
  /// Returns the number of elements of the largest local tensor.
  double local_elements(const LayoutState&) const;
  SpecPtr spec_of(const LayoutState&) const;

 private:
  LayoutState state_of(const DTensorSpec&, DimOrderChoice tag) const;
  void fill_plain_sizes();
  std::int64_t ordered_size(const LayoutState&, int tensor_dim) const;
  const DimOrderPtr& order_of(int mesh_dim, DimOrderChoice order) const;
  /// Returns the dim in which the rows lie of the order by which a state shards `tensor_dim`; -1 if
  /// it has none.
  int row_dim(const LayoutState& state, int tensor_dim) const;
  bool rows_meet(const LayoutState& state, int tensor_dim, const DimOrder& order) const;

  SpecPtr from_, to_;
  int dims_ = 0;
  bool has_dim_orders_ = false;
  std::array<int, kMaxSearchDims> mesh_dims_{};
  std::array<int, kMaxSearchDims> sizes_{};
  LayoutState start_, goal_;
  /// Largest shards by tensor dim and mask of mesh dims that shard it by the ceil rule.
  std::vector<std::int64_t> plain_sizes_;
};

/// Move is a step that could be taken: its dims are in the order in which their group is flattened.
struct Move {
  StepKind kind = StepKind::kSlice;
  DimList dims;
  LayoutState next;
};

}  // namespace meshloom::planner
