// SPDX-License-Identifier: Apache-2.0
// A conformance case as it was read, and what a kind of case has to offer the runner.
#pragma once

#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "daemon/comm/process_group.h"
#include "daemon/tensor/tensor.h"
#include "planner/mesh_layout.h"
#include "planner/placement.h"
#include "planner/plan/fusion.h"
#include "tests/conformance/object_reader.h"
#include "tests/conformance/tensor_file.h"

namespace meshloom::conformance {

/// Passes where a == b or abs(a - b) <= absolute + relative * abs(b), b the expected value.
struct Tolerance {
  double absolute = 1e-5;
  double relative = 1e-5;
};

/// How often each collective ran ("all_gather": 1); those that did not run are left out.
using CommCounts = std::map<std::string, std::int64_t>;

struct Expect {
  std::map<std::string, CommCounts> comm;                  ///< by phase, "forward" or "backward"
  std::map<std::string, std::int64_t> comm_max;            ///< by phase
  std::map<std::string, std::int64_t> bytes_max;           ///< by phase
  std::map<std::string, planner::Placements> placements;   ///< by output
  std::map<std::string, std::vector<Shape>> local_shapes;  ///< by output, one per rank
  std::optional<std::string> error_contains;
  std::optional<double> cost;
};

/// One entry of "inputs": a tensor, or a number where the name is empty.
struct CaseInput {
  std::string name;
  double value = 0.0;
  planner::Placements placements;

  bool is_number() const { return name.empty(); }
};

struct Case {
  std::string name;            ///< path below PATH without ".json", plus "#label" of a variant
  std::filesystem::path file;  ///< the .json
  std::string kind;
  planner::MeshLayout mesh;  ///< one rank where the case has none
  Tolerance out, grad, param_after;
  Expect expect;
  /// Everything, the variant merged in; keys the kind does not know are refused before it is
  /// called.
  Json keys;
};

/// What this rank brings. Both are made anew for every case.
struct RankContext {
  ExecutionContext& context;
  comm::ProcessGroup& world;
  const planner::MeshLayout& mesh;
  planner::FusionMode fusion = planner::FusionMode::kAuto;  ///< of models with sequence parallelism

  int rank() const { return world.rank(); }
};

/// What a kind found. Tensors are global values, named as in the tensor file ("out.y", "grad.x",
/// "param_after.w"); only rank 0's are compared and written.
struct CaseResults {
  std::map<std::string, Tensor> tensors;
  std::map<std::string, planner::Placements> placements;  ///< of outputs, by name ("y")
  std::map<std::string, Shape> local_shapes;              ///< this rank's part of outputs, by name
  std::map<std::string, CommCounts> comm;                 ///< by phase
  std::map<std::string, std::int64_t> bytes_sent;         ///< by phase, this rank's
  std::string plan;                                       ///< a redistribution plan as text
  std::optional<double> cost;
};

/// A kind of case. Both functions run on every rank; what they throw fails the case (or is what
/// `expect.error` asks for). `validate` throws on every rank alike; where `run` throws on some,
/// the others' waits end.
struct Kind {
  std::string_view name;
  /// Allowed beside kind, mesh, variants, label, tensors, tolerance, expect.
  std::vector<std::string_view> keys;
  /// Checks all that needs no computing: keys' types, tensors there with fitting dtypes,
  /// placements. No collectives.
  void (*validate)(const Case&, const TensorFile&);
  /// Throws Unimplemented ("... is not built yet") for a right case of what is not offered.
  void (*run)(const Case&, const TensorFile&, RankContext&, CaseResults&);
  /// False for kinds that compute without tensors and ranks: they run everywhere.
  bool needs_ranks = true;
};

}  // namespace meshloom::conformance
