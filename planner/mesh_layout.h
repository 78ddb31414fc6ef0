// SPDX-License-Identifier: Apache-2.0
// MeshLayout: named dims over the ranks of the world, in row-major order.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace meshloom::planner {

struct MeshDim {
  std::string name;  ///< may be empty where a mesh is used by index only
  int size = 1;

  bool operator==(const MeshDim&) const = default;
};

/// Ranks 0 .. size-1 laid out over the dims, the last dim fastest. A value: no communication, and
/// cheap for 100,000 ranks.
class MeshLayout {
 public:
  /// One rank, no dims.
  MeshLayout() = default;
  /// Throws InvalidArgument for sizes below 1, equal names, or more than 2^31 - 1 ranks.
  explicit MeshLayout(std::vector<MeshDim> dims);

  int size() const { return size_; }
  int ndim() const { return static_cast<int>(dims_.size()); }
  const std::vector<MeshDim>& dims() const { return dims_; }
  int dim_size(int dim) const { return dims_[static_cast<std::size_t>(dim)].size; }
  std::optional<int> find_dim(std::string_view name) const;
  /// 1 where there is no such dim.
  int size_of(std::string_view name) const;

  /// One coordinate per dim. Throws InvalidArgument outside the mesh.
  std::vector<int> coordinates(int rank) const;
  int rank_of(const std::vector<int>& coordinates) const;

  /// The ranks that differ from `rank` along `dim` only, in order of that coordinate.
  std::vector<int> group_of(int dim, int rank) const;
  /// All groups along `dim`: every rank is in exactly one.
  std::vector<std::vector<int>> groups(int dim) const;

  bool operator==(const MeshLayout&) const = default;

 private:
  int stride(int dim) const;

  std::vector<MeshDim> dims_;
  int size_ = 1;
};

/// "dp=2,tp=2"; a dim without a name is printed as its size.
std::string to_string(const MeshLayout&);

}  // namespace meshloom::planner
