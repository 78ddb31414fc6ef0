// SPDX-License-Identifier: Apache-2.0
// One rank of a mesh with everything that styles need.
#pragma once

#include <functional>
#include <map>
#include <vector>

#include "daemon/dtensor/distributed_engine.h"
#include "daemon/parallel/tensor_parallel/style_mesh.h"
#include "tests/support/thread_ranks.h"

namespace meshloom::testing {

class MeshRank {
 public:
  MeshRank(comm::ProcessGroup& world, planner::MeshLayout layout)
      : mesh_(world, std::move(layout)), engine_({mesh_, plans_}), style_mesh_(engine_) {}

  ExecutionContext& context() { return context_; }
  dtensor::DeviceMesh& mesh() { return mesh_; }
  dtensor::DistributedEngine& engine() { return engine_; }
  const parallel::StyleMesh& style_mesh() { return style_mesh_; }
  int rank() const { return mesh_.rank(); }

  planner::SpecPtr spec(const Shape& shape, const planner::Placements& placements) {
    return engine_.intern(std::make_shared<const planner::DTensorSpec>(
        mesh_.layout(), planner::normalize_placements(placements, shape.size()), shape));
  }
  /// The whole values of a local tensor in layout `spec`, Partial summed up.
  std::vector<double> whole(const Tensor& local, const planner::SpecPtr& spec) {
    const NoGradGuard no_grad(context_);
    const auto all = this->spec(
        spec->shape(), planner::Placements(static_cast<std::size_t>(mesh_.layout()->ndim())));
    return dtensor::redistribute_local(local, {spec, all}, engine_.context()).to_vector();
  }
  /// Collectives since the last reset, without those that did not run.
  std::map<std::string, int> calls() const {
    std::map<std::string, int> counts;
    for (const auto& [name, counter] : mesh_.counters())
      if (counter.calls > 0) counts[name] = static_cast<int>(counter.calls);
    return counts;
  }

 private:
  testing::TestContext context_;
  dtensor::DeviceMesh mesh_;
  planner::PlanCache plans_;
  dtensor::DistributedEngine engine_;
  parallel::StyleMesh style_mesh_;
};

/// Runs body on every rank of a mesh of threads.
inline void run_mesh(const planner::MeshLayout& layout,
                     const std::function<void(MeshRank&)>& body) {
  run_ranks(layout.size(), [&](comm::ProcessGroup& world) {
    MeshRank rank(world, layout);
    body(rank);
  });
}

inline planner::MeshLayout tp_mesh(int size) { return planner::MeshLayout({{"tp", size}}); }

}  // namespace meshloom::testing
