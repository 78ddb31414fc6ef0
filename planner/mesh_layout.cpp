// SPDX-License-Identifier: Apache-2.0
#include "planner/mesh_layout.h"

#include <algorithm>

#include "kernels/base/error.h"
#include "planner/rank_count.h"

namespace meshloom::planner {

MeshLayout::MeshLayout(std::vector<MeshDim> dims) : dims_(std::move(dims)) {
  std::vector<int> sizes;
  for (std::size_t i = 0; i < dims_.size(); ++i) {
    const MeshDim& dim = dims_[i];
    check(dim.size >= 1, "mesh: dim {} '{}' has size {}", i, dim.name, dim.size);
    sizes.push_back(dim.size);
    for (std::size_t j = 0; j < i; ++j)
      check(dim.name.empty() || dims_[j].name != dim.name, "mesh: two dims are called '{}'",
            dim.name);
  }
  const std::optional<int> size = rank_count(sizes);
  check(size.has_value(), "mesh {}: more than 2^31 - 1 ranks", *this);
  size_ = *size;
}

MeshLayout::MeshLayout(std::vector<MeshDim> dims, std::vector<int> world_ranks)
    : MeshLayout(std::move(dims)) {
  check(static_cast<int>(world_ranks.size()) == size_, "mesh {}: {} ranks of the world", *this,
        world_ranks.size());
  std::vector<int> sorted = world_ranks;
  std::sort(sorted.begin(), sorted.end());
  check(sorted.front() >= 0, "mesh {}: the world's rank {}", *this, sorted.front());
  const auto twice = std::adjacent_find(sorted.begin(), sorted.end());
  check(twice == sorted.end(), "mesh {}: the world's rank {} comes twice", *this,
        twice == sorted.end() ? 0 : *twice);
  bool identity = true;
  for (int rank = 0; rank < size_; ++rank)
    identity = identity && world_ranks[static_cast<std::size_t>(rank)] == rank;
  if (!identity) world_ranks_ = std::make_shared<const std::vector<int>>(std::move(world_ranks));
}

std::optional<int> MeshLayout::find_world_rank(int world_rank) const {
  if (!world_ranks_)
    return world_rank >= 0 && world_rank < size_ ? std::optional(world_rank) : std::nullopt;
  const auto found = std::find(world_ranks_->begin(), world_ranks_->end(), world_rank);
  if (found == world_ranks_->end()) return std::nullopt;
  return static_cast<int>(found - world_ranks_->begin());
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
  check_rank(rank);
  std::vector<int> result(dims_.size());
  for (int d = ndim() - 1; d >= 0; --d) {
    result[static_cast<std::size_t>(d)] = rank % dim_size(d);
    rank /= dim_size(d);
  }
  return result;
}

int MeshLayout::rank_of(const std::vector<int>& coordinates) const {
  if (coordinates.size() != dims_.size())
    throw InvalidArgument(
        fmt::format("mesh {}: {} coordinates", to_string(*this), coordinates.size()));
  int rank = 0;
  for (int d = 0; d < ndim(); ++d) {
    const int at = coordinates[static_cast<std::size_t>(d)];
    if (at < 0 || at >= dim_size(d))
      throw InvalidArgument(
          fmt::format("mesh {}: coordinate {} of dim {}", to_string(*this), at, d));
    rank = rank * dim_size(d) + at;
  }
  return rank;
}

// The text is made on failure only: these run for every rank of large meshes.
void MeshLayout::check_rank(int rank) const {
  if (rank < 0 || rank >= size_)
    throw InvalidArgument(fmt::format("mesh {}: no rank {}", to_string(*this), rank));
}

void MeshLayout::check_dim(int dim) const {
  if (dim < 0 || dim >= ndim())
    throw InvalidArgument(fmt::format("mesh {}: no dim {}", to_string(*this), dim));
}

void MeshLayout::check_dims(std::span<const int> dims) const {
  for (std::size_t i = 0; i < dims.size(); ++i) {
    check_dim(dims[i]);
    for (std::size_t j = 0; j < i; ++j)
      if (dims[j] == dims[i])
        throw InvalidArgument(
            fmt::format("mesh {}: dim {} is listed twice", to_string(*this), dims[i]));
  }
}

std::string MeshLayout::joined_name(const std::vector<int>& dims) const {
  std::string name;
  for (const int dim : dims)
    name += (name.empty() ? "" : "_") + dims_[static_cast<std::size_t>(dim)].name;
  return name;
}

std::vector<int> MeshLayout::find_dims(std::string_view names) const {
  std::vector<int> result;
  while (true) {
    const std::size_t comma = names.find(',');
    const std::string_view name = names.substr(0, comma);
    const auto flattened =
        std::find_if(flattened_.begin(), flattened_.end(),
                     [&](const FlattenedName& entry) { return entry.name == name; });
    if (flattened != flattened_.end()) {
      result.insert(result.end(), flattened->dims.begin(), flattened->dims.end());
    } else {
      const std::optional<int> dim = find_dim(name);
      check(dim.has_value() && !name.empty(), "mesh {} has no dim '{}'", *this, name);
      result.push_back(*dim);
    }
    if (comma == std::string_view::npos) break;
    names.remove_prefix(comma + 1);
  }
  check_dims(result);
  return result;
}

std::vector<int> MeshLayout::group_of(std::span<const int> dims, int rank) const {
  check_dims(dims);
  std::vector<int> at = coordinates(rank);
  for (const int dim : dims) at[static_cast<std::size_t>(dim)] = 0;
  std::vector<int> group{rank_of(at)};
  for (const int dim : dims) {
    std::vector<int> wider;
    wider.reserve(group.size() * static_cast<std::size_t>(dim_size(dim)));
    for (const int first : group)
      for (int i = 0; i < dim_size(dim); ++i) wider.push_back(first + i * stride(dim));
    group = std::move(wider);
  }
  return group;
}

MeshLayout MeshLayout::sub_mesh(const std::vector<int>& dims, int rank) const {
  std::vector<int> ranks = group_of(std::span<const int>(dims), rank);
  for (int& r : ranks) r = world_rank(r);
  std::vector<MeshDim> kept;
  for (const int dim : dims) kept.push_back(dims_[static_cast<std::size_t>(dim)]);
  MeshLayout result(std::move(kept), std::move(ranks));
  result.keep_names(*this, dims);
  return result;
}

void MeshLayout::keep_names(const MeshLayout& other, const std::vector<int>& order) {
  for (FlattenedName entry : other.flattened_) {
    bool complete = !find_dim(entry.name);
    for (int& dim : entry.dims) {
      const auto at = std::find(order.begin(), order.end(), dim);
      complete = complete && at != order.end();
      dim = static_cast<int>(at - order.begin());
    }
    if (complete) flattened_.push_back(std::move(entry));
  }
}

bool MeshLayout::has_flattened_name(std::string_view name) const {
  return std::any_of(flattened_.begin(), flattened_.end(),
                     [&](const FlattenedName& entry) { return entry.name == name; });
}

MeshLayout MeshLayout::with_world_ranks(std::vector<int> world_ranks) const {
  MeshLayout result(dims_, std::move(world_ranks));
  result.flattened_ = flattened_;
  return result;
}

MeshLayout MeshLayout::flatten(const std::vector<int>& dims, std::string name) const {
  check_dims(dims);
  check(!dims.empty(), "mesh {}: no dims to flatten", *this);
  MeshDim merged{name.empty() ? joined_name(dims) : std::move(name), 1};
  for (const int dim : dims) merged.size *= dim_size(dim);
  std::vector<MeshDim> result;
  std::vector<int> order;   // this mesh's dims in the order of the result
  std::vector<int> places;  // the dim that each of the result is alone, -1 for the merged one
  for (int dim = 0; dim < ndim(); ++dim) {
    if (dim == dims.front()) {
      result.push_back(merged);
      places.push_back(dims.size() == 1 ? dim : -1);
      order.insert(order.end(), dims.begin(), dims.end());
    } else if (std::find(dims.begin(), dims.end(), dim) == dims.end()) {
      result.push_back(dims_[static_cast<std::size_t>(dim)]);
      places.push_back(dim);
      order.push_back(dim);
    }
  }
  std::vector<int> ranks = group_of(std::span<const int>(order), 0);
  for (int& r : ranks) r = world_rank(r);
  MeshLayout flat(std::move(result), std::move(ranks));
  flat.keep_names(*this, places);
  return flat;
}

MeshLayout MeshLayout::with_flattened_name(const std::vector<int>& dims, std::string name) const {
  check_dims(dims);
  if (name.empty()) name = joined_name(dims);
  check(!name.empty() && !find_dim(name), "mesh {}: '{}' cannot name flattened dims", *this, name);
  MeshLayout result = *this;
  std::erase_if(result.flattened_, [&](const FlattenedName& entry) { return entry.name == name; });
  result.flattened_.push_back({std::move(name), dims});
  return result;
}

bool MeshLayout::operator==(const MeshLayout& other) const {
  if (dims_ != other.dims_ || row_major() != other.row_major()) return false;
  return world_ranks_ == other.world_ranks_ || *world_ranks_ == *other.world_ranks_;
}

std::vector<int> MeshLayout::group_of(int dim, int rank) const {
  check_dim(dim);
  check_rank(rank);
  const int step = stride(dim);
  const int size = dim_size(dim);
  const int first = rank - rank / step % size * step;
  std::vector<int> group;
  group.reserve(static_cast<std::size_t>(size));
  for (int i = 0; i < size; ++i) group.push_back(first + i * step);
  return group;
}

std::vector<std::vector<int>> MeshLayout::groups(int dim) const {
  check_dim(dim);
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
