// SPDX-License-Identifier: Apache-2.0
// Picks one strategy per mesh dim: branch and bound over the product of the mesh dims' strategies,
// ordered by the cost that each mesh dim adds by itself.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "planner/sharding/rule.h"
#include "planner/sharding/transition_cost.h"

namespace meshloom::planner {

/// StrategyChoice has one strategy per mesh dim: 0 replicate, then the rule's axes, then its
/// partials.
struct StrategyChoice {
  std::vector<int> strategies;
  double cost = 0.0;     ///< estimated, with what is pending
  double pending = 0.0;  ///< of it, what reducing new Partial outputs will cost
  int changes = 0;       ///< (input, mesh dim) pairs whose placement changes
};

class StrategySearch {
 public:
  /// All three outlive the search.
  StrategySearch(const OpCall& call, const OpRule& rule, const RedistributeOptions& options);

  /// Returns the best choices, cheapest first: by messages, then by fewer changes, then as listed.
  /// Only the first if it needs no message.
  std::vector<StrategyChoice> best(std::size_t count);

  // --- What a choice means
  const ShardAxis* axis(int strategy) const;
  const PartialStrategy* partial(int strategy) const;
  /// Returns how the mesh dims that chose axis `index` shard it.
  const AxisSharding& sharding(const StrategyChoice& choice, int index);
  /// Returns the sharding as the order of the dim in which a tensor shows the axis.
  DimSharding sharding_of_input(const ShardAxis& axis, const AxisSharding& sharding,
                                std::size_t input) const;
  DimSharding sharding_of_output(const ShardAxis& axis, const AxisSharding& sharding,
                                 std::size_t output) const;
  Placement input_placement(int strategy, std::size_t input) const;
  Placement output_placement(int strategy, std::size_t output) const;

 private:
  /// A strategy on one mesh dim costs this at the least.
  struct Scored {
    int strategy = 0;
    double cost = 0.0;
    double pending = 0.0;
    int changes = 0;
  };
  struct SolvedAxis {
    bool legal = false;
    double cost = 0.0;
    AxisSharding sharding;
  };

  void score(int mesh_dim);
  double least_bytes(std::size_t input, int mesh_dim) const;
  double input_cost(std::size_t input, const std::vector<int>& strategies) const;
  double pending_cost(int mesh_dim, int strategy) const;
  void descend(const StrategyChoice& choice);
  bool cannot_enter(const StrategyChoice& choice, const Scored& rest) const;
  void finish(StrategyChoice choice);
  bool keep_apart(const std::vector<int>& strategies) const;
  bool rows_meet(const StrategyChoice& choice);
  const SolvedAxis& solved_axis(int index, const std::vector<int>& mesh_dims);
  std::vector<AxisSharding> candidates(const ShardAxis& axis,
                                       const std::vector<int>& mesh_dims) const;
  /// Returns the cost of bringing the inputs into this sharding; none if some tensor cannot show
  /// it.
  std::optional<double> cost_of_sharding(const ShardAxis& axis, const AxisSharding& sharding) const;
  bool idles_ranks(const DTensorSpec& spec, const AxisUse& use, const AxisSharding& sharding) const;
  double reshard(std::size_t input, const AxisUse& use, const AxisSharding& sharding,
                 const DimOrderPtr& order) const;

  const OpCall& call_;
  const OpRule& rule_;
  const RedistributeOptions& options_;
  const MeshLayout* mesh_ = nullptr;
  bool any_rows_ = false;  ///< some input has an order by rows
  std::vector<MeshLink> links_;
  std::vector<double> local_bytes_;          ///< by input, in the layout it has
  std::vector<std::vector<Scored>> scored_;  ///< by mesh dim, cheapest first
  std::vector<Scored> least_rest_;           ///< by mesh dim: the least that it and those after add
  std::map<std::pair<int, std::vector<int>>, SolvedAxis> solved_;
  std::vector<StrategyChoice> kept_;
  std::size_t count_ = 1;
};

}  // namespace meshloom::planner
