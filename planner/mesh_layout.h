// SPDX-License-Identifier: Apache-2.0
// MeshLayout: named dims over ranks of the world.
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "kernels/base/format.h"

namespace meshloom::planner {

struct MeshDim {
  std::string name;  ///< may be empty if a mesh is used by index only
  int size = 1;

  bool operator==(const MeshDim&) const = default;
};

/// MeshLayout has ranks 0 .. size-1 of the mesh laid out over the dims, the last dim fastest. Mesh
/// rank i is rank i of the world, or that of a list (a sub-mesh, flattened dims, some hosts only).
/// A value: no communication, and cheap for 100,000 ranks. "Rank" means mesh rank if nothing else
/// is said.
class MeshLayout {
 public:
  /// Makes the mesh of one rank, without dims.
  MeshLayout() = default;
  /// Throws InvalidArgument for sizes below 1, equal names, or more than 2^31 - 1 ranks.
  explicit MeshLayout(std::vector<MeshDim> dims);
  /// Mesh rank i is `world_ranks[i]`. Throws InvalidArgument also if their number is not the
  /// mesh's size, or if one is negative or comes twice.
  MeshLayout(std::vector<MeshDim> dims, std::vector<int> world_ranks);

  int size() const { return size_; }
  int ndim() const { return static_cast<int>(dims_.size()); }
  const std::vector<MeshDim>& dims() const { return dims_; }
  int dim_size(int dim) const { return dims_[static_cast<std::size_t>(dim)].size; }
  std::optional<int> find_dim(std::string_view name) const;
  /// Returns 1 if there is no such dim.
  int size_of(std::string_view name) const;

  /// Returns one coordinate per dim. Throws InvalidArgument outside the mesh.
  std::vector<int> coordinates(int rank) const;
  int rank_of(const std::vector<int>& coordinates) const;

  int world_rank(int rank) const {
    return world_ranks_ ? (*world_ranks_)[static_cast<std::size_t>(rank)] : rank;
  }
  /// Returns nothing if the world's rank is not in this mesh.
  std::optional<int> find_world_rank(int world_rank) const;
  /// Returns true if mesh rank i is the world's rank i.
  bool row_major() const { return world_ranks_ == nullptr; }

  /// Returns the indices of dims by name; a name that `flatten` made stands for the dims it was
  /// made of ("dp_cp": dp and cp), so does a list "dp,cp". Throws InvalidArgument naming what is
  /// unknown.
  std::vector<int> find_dims(std::string_view names) const;
  /// Returns true for a name that stands for other dims.
  bool has_flattened_name(std::string_view name) const;
  /// Returns the mesh of these dims, in this order, that holds `rank`; the other coordinates are
  /// its own. Names for several of them stay known, here and in flatten.
  MeshLayout sub_mesh(const std::vector<int>& dims, int rank) const;
  /// Returns the same ranks with `dims` (at least one) made one dim, row-major in the listed order,
  /// at the place of the first one listed. An empty name: theirs, joined by "_".
  MeshLayout flatten(const std::vector<int>& dims, std::string name = {}) const;
  /// Returns this mesh, which `find_dims` then also knows by `name` as a name for `dims`.
  MeshLayout with_flattened_name(const std::vector<int>& dims, std::string name = {}) const;

  /// Returns a mesh of the same dims and names over these ranks.
  MeshLayout with_world_ranks(std::vector<int> world_ranks) const;

  /// Returns the ranks that differ from `rank` along `dims` only, row-major in the listed order.
  std::vector<int> group_of(std::span<const int> dims, int rank) const;
  /// Returns the ranks that differ from `rank` along `dim` only, in order of that coordinate.
  std::vector<int> group_of(int dim, int rank) const;
  /// Returns all groups along `dim`: every rank is in exactly one.
  std::vector<std::vector<int>> groups(int dim) const;

  /// Compares dims, names and ranks.
  bool operator==(const MeshLayout& other) const;

 private:
  struct FlattenedName {
    std::string name;
    std::vector<int> dims;
  };

  int stride(int dim) const;
  void check_rank(int rank) const;
  void check_dim(int dim) const;
  void check_dims(std::span<const int> dims) const;
  /// Takes over the names of `other` for dims that are all still there: other's dim order[i] is dim
  /// i of this mesh.
  void keep_names(const MeshLayout& other, const std::vector<int>& order);
  std::string joined_name(const std::vector<int>& dims) const;

  std::vector<MeshDim> dims_;
  int size_ = 1;
  std::shared_ptr<const std::vector<int>> world_ranks_;  ///< null: row-major
  std::vector<FlattenedName> flattened_;
};

/// Returns "dp=2,tp=2"; a dim without a name is printed as its size.
std::string to_string(const MeshLayout&);

}  // namespace meshloom::planner

template <>
struct fmt::formatter<meshloom::planner::MeshLayout>
    : meshloom::ToStringFormatter<meshloom::planner::MeshLayout> {};
