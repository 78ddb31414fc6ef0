// SPDX-License-Identifier: Apache-2.0
#include "daemon/dtensor/device_mesh.h"

#include <algorithm>
#include <numeric>

#include "daemon/dtensor/step_recipe.h"
#include "kernels/base/error.h"

namespace meshloom::dtensor {
namespace {

std::vector<int> first_integers(int count) {
  std::vector<int> ranks(static_cast<std::size_t>(count));
  std::iota(ranks.begin(), ranks.end(), 0);
  return ranks;
}

/// Meshes over different ranks are different layouts.
planner::MeshLayout with_ranks(planner::MeshLayout layout, const std::vector<int>& ranks) {
  if (ranks.empty() || !layout.row_major() || static_cast<int>(ranks.size()) != layout.size())
    return layout;
  return ranks == first_integers(layout.size()) ? layout : layout.with_world_ranks(ranks);
}

std::vector<int> mesh_ranks(const comm::ProcessGroup& parent, const planner::MeshLayout& layout,
                            std::vector<int> ranks) {
  if (ranks.empty())
    for (int r = 0; r < layout.size(); ++r) ranks.push_back(layout.world_rank(r));
  check(static_cast<int>(ranks.size()) == layout.size(), "DeviceMesh: {} ranks for the mesh {}",
        ranks.size(), layout);
  check(layout.size() <= parent.size(), "DeviceMesh: the mesh {} needs {} ranks, group '{}' has {}",
        layout, layout.size(), parent.name(), parent.size());
  std::vector<int> sorted = ranks;
  std::sort(sorted.begin(), sorted.end());
  check(sorted.front() >= 0 && sorted.back() < parent.size() &&
            std::adjacent_find(sorted.begin(), sorted.end()) == sorted.end(),
        "DeviceMesh: ranks [{}] are not distinct ranks of a group of {}", fmt::join(ranks, ", "),
        parent.size());
  return ranks;
}

/// All groups of ranks that differ along `mesh_dims` only.
std::vector<std::vector<int>> groups_along(const planner::MeshLayout& layout,
                                           const std::vector<int>& mesh_dims) {
  std::map<std::vector<int>, std::vector<std::pair<int, int>>> groups;
  for (int rank = 0; rank < layout.size(); ++rank) {
    std::vector<int> rest = layout.coordinates(rank);
    int place = 0;
    for (const int dim : mesh_dims) {
      place = place * layout.dim_size(dim) + rest[static_cast<std::size_t>(dim)];
      rest[static_cast<std::size_t>(dim)] = 0;
    }
    groups[rest].push_back({place, rank});
  }
  std::vector<std::vector<int>> parts;
  for (auto& [rest, members] : groups) {
    std::sort(members.begin(), members.end());
    std::vector<int>& part = parts.emplace_back();
    for (const auto& [place, rank] : members) part.push_back(rank);
  }
  return parts;
}

/// The frame of a mesh whose dim i is made of dims parts[i] of the mesh with this frame. One dim of
/// the result may be made of several only: numbers of the others are looked up again.
MeshFrame part_of(const MeshFrame& whole, const std::vector<std::vector<int>>& parts) {
  MeshFrame frame = whole;
  frame.dims.clear();
  // By rank of the frame's first layout, its dims as they move.
  std::vector<int> now(static_cast<std::size_t>(whole.layout->ndim()));
  std::iota(now.begin(), now.end(), 0);
  std::vector<int> first;
  for (const std::vector<int>& part : parts) {
    std::vector<int> dims;
    for (const int d : part)
      dims.push_back(now[static_cast<std::size_t>(whole.dims[static_cast<std::size_t>(d)])]);
    first.push_back(whole.dims[static_cast<std::size_t>(part.front())]);
    if (dims.size() == 1) continue;
    // The frame's dims `dims` become one dim: dim `place`.
    int place = 0;
    for (int d = 0; d < dims.front(); ++d)
      if (std::find(dims.begin(), dims.end(), d) == dims.end()) ++place;
    frame.layout = std::make_shared<const planner::MeshLayout>(frame.layout->flatten(dims));
    frame.mesh = nullptr;
    for (int& d : now) {
      const bool merged = std::find(dims.begin(), dims.end(), d) != dims.end();
      const auto gone = std::count_if(dims.begin(), dims.end(),
                                      [&](int m) { return m < d && m != dims.front(); });
      d = merged ? place : d - static_cast<int>(gone);
    }
  }
  for (const int d : first) frame.dims.push_back(now[static_cast<std::size_t>(d)]);
  return frame;
}

}  // namespace

DeviceMesh::DeviceMesh(comm::ProcessGroup& parent, planner::MeshLayout layout,
                       const std::vector<int>& ranks)
    : parent_(parent),
      layout_(std::make_shared<const planner::MeshLayout>(with_ranks(std::move(layout), ranks))),
      parent_ranks_(mesh_ranks(parent, *layout_, ranks)),
      step_cache_(std::make_unique<StepCache>()) {
  frame_ = {this, this, layout_, first_integers(layout_->ndim())};
  const auto own = std::find(parent_ranks_.begin(), parent_ranks_.end(), parent.rank());
  // The mesh's ranks as one part, every other rank alone.
  std::vector<std::vector<int>> parts = {parent_ranks_};
  for (int r = 0; r < parent.size(); ++r)
    if (std::find(parent_ranks_.begin(), parent_ranks_.end(), r) == parent_ranks_.end())
      parts.push_back({r});
  members_ = parent.split(parts, "mesh");
  if (own == parent_ranks_.end()) return;
  rank_ = static_cast<int>(own - parent_ranks_.begin());
  coordinates_ = layout_->coordinates(rank_);
  for (int dim = 0; dim < layout_->ndim(); ++dim) group(dim);
}

DeviceMesh::~DeviceMesh() = default;

comm::ProcessGroup& DeviceMesh::group(int mesh_dim) { return group(std::vector<int>{mesh_dim}); }

comm::ProcessGroup& DeviceMesh::group(const std::vector<int>& mesh_dims) {
  if (const auto found = groups_.find(mesh_dims); found != groups_.end()) return *found->second;
  if (!member())
    throw FailedPrecondition(fmt::format("DeviceMesh {}: rank {} of group '{}' is not part of it",
                                         to_string(*layout_), parent_.rank(), parent_.name()));
  for (const int dim : mesh_dims)
    check(dim >= 0 && dim < layout_->ndim(), "DeviceMesh {}: there is no mesh dim {}", *layout_,
          dim);
  const auto parts = groups_along(*layout_, mesh_dims);
  std::vector<std::string> names;
  for (const int dim : mesh_dims) {
    const std::string& name = layout_->dims()[static_cast<std::size_t>(dim)].name;
    names.push_back(name.empty() ? fmt::format("mesh dim {}", dim) : name);
  }
  auto made = parts.front().size() == 1
                  ? comm::make_single_process_group({.device = members_->device()})
                  : members_->split(parts, fmt::format("{}", fmt::join(names, "_")));
  return *groups_.emplace(mesh_dims, std::move(made)).first->second;
}

comm::ProcessGroup& DeviceMesh::whole_group() { return group(first_integers(layout_->ndim())); }

comm::ProcessGroup& DeviceMesh::control_group() { return *members_; }

std::vector<DeviceMesh::NamedDims> DeviceMesh::find_dims(
    const std::vector<std::string>& names) const {
  std::vector<NamedDims> result;
  std::vector<int> used;
  for (const std::string& name : names) {
    NamedDims found{name, {}};
    const auto known = std::find_if(flattened_.begin(), flattened_.end(),
                                    [&](const NamedDims& f) { return f.name == name; });
    if (const std::optional<int> dim = layout_->find_dim(name))
      found.dims = {*dim};
    else if (known != flattened_.end())
      found.dims = known->dims;
    else if (layout_->has_flattened_name(name))
      found.dims = layout_->find_dims(name);
    else
      throw NotFound(
          fmt::format("DeviceMesh {}: there is no mesh dim '{}'", to_string(*layout_), name));
    for (const int dim : found.dims) {
      check(std::find(used.begin(), used.end(), dim) == used.end(),
            "DeviceMesh {}: mesh dim '{}' is listed twice", *layout_,
            layout_->dims()[static_cast<std::size_t>(dim)].name);
      used.push_back(dim);
    }
    result.push_back(std::move(found));
  }
  return result;
}

std::unique_ptr<DeviceMesh> DeviceMesh::part(const std::vector<NamedDims>& parts) {
  std::vector<int> all;
  std::vector<std::vector<int>> dims;
  for (const NamedDims& part : parts) {
    all.insert(all.end(), part.dims.begin(), part.dims.end());
    dims.push_back(part.dims);
  }
  comm::ProcessGroup& group_of_dims = group(all);
  planner::MeshLayout layout = layout_->sub_mesh(all, rank_);
  for (int d = 0; d < static_cast<int>(parts.size()); ++d) {
    const auto& part = parts[static_cast<std::size_t>(d)];
    std::vector<int> merged(part.dims.size());
    std::iota(merged.begin(), merged.end(), d);
    const bool renamed =
        part.dims.size() == 1 && layout.dims()[static_cast<std::size_t>(d)].name == part.name;
    if (!renamed) layout = layout.flatten(merged, part.name);
  }
  auto mesh = std::make_unique<DeviceMesh>(group_of_dims, std::move(layout),
                                           first_integers(group_of_dims.size()));
  mesh->frame_ = part_of(frame_, dims);
  return mesh;
}

std::unique_ptr<DeviceMesh> DeviceMesh::sub_mesh(const std::vector<std::string>& dim_names) {
  return part(find_dims(dim_names));
}

std::unique_ptr<DeviceMesh> DeviceMesh::flattened(const std::vector<std::string>& dim_names,
                                                  const std::string& name) {
  NamedDims merged{name, {}};
  for (const NamedDims& part : find_dims(dim_names))
    merged.dims.insert(merged.dims.end(), part.dims.begin(), part.dims.end());
  std::unique_ptr<DeviceMesh> mesh = part({merged});
  std::erase_if(flattened_, [&](const NamedDims& known) { return known.name == name; });
  flattened_.push_back(std::move(merged));
  return mesh;
}

std::map<std::string, comm::CommCounter> DeviceMesh::counters() const {
  std::map<std::string, comm::CommCounter> sums;
  for (const auto& [dims, group] : groups_) {
    for (const auto& [collective, counter] : group->counters()) {
      sums[collective].calls += counter.calls;
      sums[collective].bytes_sent += counter.bytes_sent;
      sums[collective].bytes_staged += counter.bytes_staged;
    }
  }
  return sums;
}

void DeviceMesh::reset_counters() {
  for (const auto& [dims, group] : groups_) group->reset_counters();
}

std::string DeviceMesh::flight_record() const {
  std::string text;
  for (const auto& [dims, group] : groups_) {
    if (group->size() == 1) continue;
    text += fmt::format("group '{}', rank {} of {}:\n{}", group->name(), group->rank(),
                        group->size(), group->flight_record());
  }
  return text;
}

}  // namespace meshloom::dtensor
