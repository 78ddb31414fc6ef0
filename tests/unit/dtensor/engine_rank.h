// SPDX-License-Identifier: Apache-2.0
// A rank with a mesh and a layout engine, as a thread of the test.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "daemon/dtensor/distributed_engine.h"
#include "tests/support/thread_ranks.h"

namespace meshloom::test {

struct EngineRank {
  ExecutionContext& context;
  comm::ProcessGroup& world;
  dtensor::DeviceMesh& mesh;
  dtensor::DistributedEngine& engine;

  /// Returns how often this mesh called a collective since the last reset.
  std::uint64_t calls(const std::string& collective) const {
    const auto counters = mesh.counters();
    const auto found = counters.find(collective);
    return found == counters.end() ? 0 : found->second.calls;
  }
  std::uint64_t calls() const {
    std::uint64_t sum = 0;
    for (const auto& [name, counter] : mesh.counters()) sum += counter.calls;
    return sum;
  }
};

inline planner::Placements placements(const std::vector<const char*>& texts) {
  planner::Placements parsed;
  for (const char* text : texts) parsed.push_back(planner::parse_placement(text));
  return parsed;
}

/// Runs body on `world_size` ranks (the mesh's size where 0); mesh rank i is world rank ranks[i].
inline void on_engine_mesh(const std::vector<int>& sizes,
                           const std::function<void(EngineRank&)>& body, int world_size = 0,
                           const std::vector<int>& ranks = {}) {
  std::vector<planner::MeshDim> dims;
  for (const int size : sizes) dims.push_back({"", size});
  const planner::MeshLayout layout(dims);
  testing::run_thread_ranks(
      world_size == 0 ? layout.size() : world_size, [&](comm::RankRuntime& runtime) {
        const auto world =
            testing::make_test_world(runtime, {"world", std::chrono::seconds(20), nullptr, {}});
        testing::TestContext context;
        dtensor::DeviceMesh mesh(*world, layout, ranks);
        planner::PlanCache plans;
        dtensor::DistributedEngine engine({mesh, plans});
        EngineRank rank{context, *world, mesh, engine};
        body(rank);
      });
}

/// What call() throws; "" where it throws nothing of this type.
template <typename Error, typename Call>
std::string error_text(Call&& call) {
  try {
    call();
  } catch (const Error& error) {
    return error.what();
  }
  return {};
}

}  // namespace meshloom::test
