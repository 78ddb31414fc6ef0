// SPDX-License-Identifier: Apache-2.0
#include "planner/mesh_layout.h"

#include <cstdint>
#include <limits>

#include "kernels/base/error.h"

namespace meshloom::planner {

MeshLayout::MeshLayout(std::vector<MeshDim> dims) : dims_(std::move(dims)) {
  std::int64_t size = 1;
  for (std::size_t i = 0; i < dims_.size(); ++i) {
    const MeshDim& dim = dims_[i];
    check(dim.size >= 1, "mesh: dim {} '{}' has size {}", i, dim.name, dim.size);
    size *= dim.size;
    check(size <= std::numeric_limits<int>::max(), "mesh: more than 2^31 - 1 ranks");
    for (std::size_t j = 0; j < i; ++j)
      check(dim.name.empty() || dims_[j].name != dim.name, "mesh: two dims are called '{}'",
            dim.name);
  }
  size_ = static_cast<int>(size);
}

std::optional<int> MeshLayout::find_dim(std::string_view name) const {
  for (std::size_t i = 0; i < dims_.size(); ++i)
    if (dims_[i].name == name) return static_cast<int>(i);
  return std::nullopt;
}

int MeshLayout::size_of(std::string_view name) const {
  const std::optional<int> dim = find_dim(name);
  return dim ? dim_size(*dim) : 1;
}

int MeshLayout::stride(int dim) const {
  int stride = 1;
  for (int d = ndim() - 1; d > dim; --d) stride *= dim_size(d);
  return stride;
}

std::vector<int> MeshLayout::coordinates(int rank) const {
  check(rank >= 0 && rank < size_, "mesh {}: no rank {}", to_string(*this), rank);
  std::vector<int> result(dims_.size());
  for (int d = ndim() - 1; d >= 0; --d) {
    result[static_cast<std::size_t>(d)] = rank % dim_size(d);
    rank /= dim_size(d);
  }
  return result;
}

int MeshLayout::rank_of(const std::vector<int>& coordinates) const {
  check(coordinates.size() == dims_.size(), "mesh {}: {} coordinates", to_string(*this),
        coordinates.size());
  int rank = 0;
  for (int d = 0; d < ndim(); ++d) {
    const int at = coordinates[static_cast<std::size_t>(d)];
    check(at >= 0 && at < dim_size(d), "mesh {}: coordinate {} of dim {}", to_string(*this), at, d);
    rank = rank * dim_size(d) + at;
  }
  return rank;
}

std::vector<int> MeshLayout::group_of(int dim, int rank) const {
  check(dim >= 0 && dim < ndim(), "mesh {}: no dim {}", to_string(*this), dim);
  check(rank >= 0 && rank < size_, "mesh {}: no rank {}", to_string(*this), rank);
  const int step = stride(dim);
  const int size = dim_size(dim);
  const int first = rank - rank / step % size * step;
  std::vector<int> group;
  group.reserve(static_cast<std::size_t>(size));
  for (int i = 0; i < size; ++i) group.push_back(first + i * step);
  return group;
}

std::vector<std::vector<int>> MeshLayout::groups(int dim) const {
  check(dim >= 0 && dim < ndim(), "mesh {}: no dim {}", to_string(*this), dim);
  const int step = stride(dim);
  std::vector<std::vector<int>> result;
  for (int rank = 0; rank < size_; ++rank)
    if (rank / step % dim_size(dim) == 0) result.push_back(group_of(dim, rank));
  return result;
}

std::string to_string(const MeshLayout& mesh) {
  std::string text;
  for (const MeshDim& dim : mesh.dims()) {
    if (!text.empty()) text += ",";
    text += dim.name.empty() ? std::to_string(dim.size) : fmt::format("{}={}", dim.name, dim.size);
  }
  return text.empty() ? "1" : text;
}

}  // namespace meshloom::planner
