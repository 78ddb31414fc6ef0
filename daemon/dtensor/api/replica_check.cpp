// SPDX-License-Identifier: Apache-2.0
#include "daemon/dtensor/api/replica_check.h"

#include <xxhash.h>

#include <map>

#include "daemon/tensor/layout.h"
#include "daemon/tensor/ops/shape.h"
#include "kernels/base/error.h"

namespace meshloom::dtensor {
namespace {

std::int64_t hash_of(const Tensor& tensor) {
  const Tensor dense = ops::contiguous(local_of(tensor).detach());
  const TensorView view = dense.view();
  return static_cast<std::int64_t>(XXH3_64bits(view.data, view.bytes()));
}

/// Ranks of equal keys hold the same part.
std::vector<int> part_key(const Tensor& tensor, const planner::MeshLayout& mesh, int rank) {
  std::vector<int> key = mesh.coordinates(rank);
  for (int d = 0; d < mesh.ndim(); ++d)
    if (!tensor.has_layout() || tensor.layout()->spec->placement(d).is_replicate())
      key[static_cast<std::size_t>(d)] = 0;
  return key;
}

}  // namespace

std::string ReplicaMismatch::text() const {
  return fmt::format("replicas of '{}' differ: rank {} does not hold what rank {} holds", name,
                     rank, reference);
}

std::optional<ReplicaMismatch> find_replica_mismatch(std::span<const NamedReplica> tensors,
                                                     DeviceMesh& mesh) {
  if (tensors.empty() || !mesh.member()) return std::nullopt;
  const auto count = static_cast<std::int64_t>(tensors.size());
  std::vector<std::int64_t> mine;
  for (const NamedReplica& replica : tensors) mine.push_back(hash_of(replica.tensor));
  ExecutionContext& context = tensors[0].tensor.context();
  comm::ProcessGroup& group = mesh.whole_group();
  const Tensor own = from_values(context, {count}, std::span<const std::int64_t>(mine));
  const Tensor all = empty(context, {group.size(), count}, DType::kInt64);
  std::vector<TensorView> views;
  for (int r = 0; r < group.size(); ++r)
    views.push_back(make_view(all.data<std::int64_t>() + r * count, DType::kInt64, {count}));
  group.all_gather(views, own.view())->wait_host();
  for (std::int64_t i = 0; i < count; ++i) {
    const NamedReplica& replica = tensors[static_cast<std::size_t>(i)];
    std::map<std::vector<int>, int> first;
    for (int r = 0; r < group.size(); ++r) {
      const auto [found, is_new] = first.emplace(part_key(replica.tensor, *mesh.layout(), r), r);
      const std::int64_t* hashes = all.data<std::int64_t>() + i;
      if (!is_new && hashes[r * count] != hashes[found->second * count])
        return ReplicaMismatch{replica.name, r, found->second};
    }
  }
  return std::nullopt;
}

}  // namespace meshloom::dtensor
