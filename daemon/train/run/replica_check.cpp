// SPDX-License-Identifier: Apache-2.0
#include "daemon/train/run/replica_check.h"

#include <xxhash.h>

#include <map>
#include <memory>

#include "daemon/comm/agreement/rank_values.h"
#include "daemon/tensor/host_pieces.h"
#include "kernels/base/error.h"

namespace meshloom::train {
namespace {

/// Of the float32 masters, bit for bit; 0 of one without elements.
std::vector<std::int64_t> digests_of_masters(ModelState& model) {
  const std::unique_ptr<XXH3_state_t, XXH_errorcode (*)(XXH3_state_t*)> state(XXH3_createState(),
                                                                              &XXH3_freeState);
  if (!state) throw ResourceExhausted("out of memory for a digest");
  std::vector<std::int64_t> digests;
  HostPieces pieces(model.model().context());
  for (std::size_t i = 0; i < model.specs().size(); ++i) {
    const Tensor& master = model.optimizer().master(i);
    XXH3_64bits_reset(state.get());
    pieces.read(master.view(), DType::kFloat32, [&](std::span<const std::byte> piece) {
      XXH3_64bits_update(state.get(), piece.data(), piece.size());
    });
    digests.push_back(
        master.numel() > 0 ? static_cast<std::int64_t>(XXH3_64bits_digest(state.get())) : 0);
  }
  return digests;
}

}  // namespace

void check_replicas(ModelState& state, std::int64_t step) {
  comm::ProcessGroup& world = state.mesh().world();
  const auto& parameters = state.optimizer().parameters();
  const auto all = comm::all_gather(world, digests_of_masters(state));
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
