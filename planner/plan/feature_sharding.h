// SPDX-License-Identifier: Apache-2.0
// What a module says about how its features may be sharded over ranks.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace meshloom::planner {

/// The units say how a dim of features is built: `groups` equal stretches (queries, keys and values
/// in one projection), each of units of `unit` features that are never sharded (a head).
struct FeatureUnits {
  int groups = 1;
  std::int64_t unit = 1;
  /// So many neighbouring units stay on one rank (the query heads of one key-value head) if that
  /// leaves at least one bundle for each rank.
  std::int64_t bundle = 1;
  /// If there are fewer units than ranks, every rank holds all of them (key-value heads).
  bool whole_where_few = false;
};

/// The struct says how one parameter of a module is sharded.
struct ParameterSharding {
  std::string name;  ///< as registered
  int dim = -1;      ///< -1: whole on every rank
  FeatureUnits units = {};
};

struct FeatureSharding {
  std::vector<ParameterSharding> parameters = {};  ///< all of the module's
  /// The last dim of the input is sharded as well. Else the input is whole.
  bool shards_input = false;
  /// The last dim of the output is sharded; else outputs are sums over ranks.
  bool shards_output = false;
};

}  // namespace meshloom::planner
