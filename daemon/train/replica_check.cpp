// SPDX-License-Identifier: Apache-2.0
#include "daemon/train/replica_check.h"

#include <fmt/ranges.h>
#include <xxhash.h>

#include <map>

#include "kernels/base/error.h"

namespace meshloom::train {
namespace {

/// Equally many values of every rank, by rank.
std::vector<std::vector<std::int64_t>> gather_values(comm::ProcessGroup& world,
                                                     const std::vector<std::int64_t>& mine) {
  std::vector<std::vector<std::int64_t>> all(static_cast<std::size_t>(world.size()), mine);
  std::vector<TensorView> views;
  for (auto& values : all)
    views.push_back(
        make_view(values.data(), DType::kInt64, {static_cast<std::int64_t>(values.size())}));
  if (world.size() > 1)
    world.all_gather(views, views[static_cast<std::size_t>(world.rank())])->wait_host();
  return all;
}

std::int64_t digest_of_bytes(const void* data, std::size_t bytes) {
  return static_cast<std::int64_t>(XXH3_64bits(data, bytes));
}

}  // namespace

void check_same_text(comm::ProcessGroup& world, const std::string& what, const std::string& text) {
  const auto all = gather_values(world, {digest_of_bytes(text.data(), text.size())});
  std::vector<int> others;
  for (int rank = 0; rank < world.size(); ++rank)
    if (all[static_cast<std::size_t>(rank)] != all[0]) others.push_back(rank);
  if (others.empty()) return;
  const std::string ranks = fmt::format("{}", fmt::join(others, ", "));
  throw FailedPrecondition(fmt::format("{} of rank{} {} is not that of rank 0", what,
                                       others.size() > 1 ? "s" : "", ranks),
                           "PLAN_MISMATCH", {{"ranks", ranks}});
}

void check_replicas(ModelState& state, std::int64_t step) {
  comm::ProcessGroup& world = state.mesh().world();
  const auto& parameters = state.optimizer().parameters();
  std::vector<std::int64_t> digests;
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    const TensorView view = state.optimizer().master(i).view();
    digests.push_back(
        view.numel() > 0 ? digest_of_bytes(view.data, static_cast<std::size_t>(view.bytes())) : 0);
  }
  const auto all = gather_values(world, digests);
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    const planner::SpecPtr& spec = state.specs()[i];
    // Ranks with equal coordinates on the mesh dims that shard the parameter hold the same part.
    std::map<std::vector<int>, int> first_with;
    for (int rank = 0; rank < world.size(); ++rank) {
      std::vector<int> part = spec->mesh().coordinates(rank);
      for (int dim = 0; dim < spec->mesh().ndim(); ++dim)
        if (!spec->placement(dim).is_shard()) part[static_cast<std::size_t>(dim)] = 0;
      const int reference = first_with.emplace(part, rank).first->second;
      if (all[static_cast<std::size_t>(rank)][i] != all[static_cast<std::size_t>(reference)][i])
        throw InternalError(fmt::format(
            "step {}: parameter {} of rank {} differs from that of rank {}, which holds the same "
            "part of it",
            step, parameters[i].name, rank, reference));
    }
  }
}

}  // namespace meshloom::train
