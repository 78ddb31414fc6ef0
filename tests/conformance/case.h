// SPDX-License-Identifier: Apache-2.0
// A conformance case as it was read, and what a kind of case has to offer the runner.
#pragma once

#include <filesystem>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "daemon/comm/process_group.h"
#include "daemon/tensor/tensor.h"
#include "planner/mesh_layout.h"
#include "planner/placement.h"

namespace meshloom::conformance {

using Json = nlohmann::ordered_json;

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
  Json keys;  ///< everything, the variant merged in; keys the kind does not know are refused before
              ///< it is called
};

/// The case's safetensors file, opened and checked as a whole.
class TensorFile {
 public:
  /// Throws Error naming the file for what is missing or malformed.
  explicit TensorFile(const std::filesystem::path& file);
  /// A file without tensors, for kinds that need none.
  TensorFile();
  ~TensorFile();

  bool has(const std::string& name) const;
  std::vector<std::string> names() const;
  /// These throw NotFound naming `name` and the file where there is no such tensor.
  DType dtype(const std::string& name) const;
  Shape shape(const std::string& name) const;
  Tensor load(ExecutionContext&, const std::string& name) const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

/// What this rank brings. Both are made anew for every case.
struct RankContext {
  ExecutionContext& context;
  comm::ProcessGroup& world;
  const planner::MeshLayout& mesh;

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
/// `expect.error` asks for), and they must throw on every rank alike.
struct Kind {
  std::string_view name;
  std::vector<std::string_view>
      keys;  ///< allowed beside kind, mesh, variants, label, tensors, tolerance, expect
  /// Checks all that needs no computing: keys' types, tensors there with fitting dtypes,
  /// placements. No collectives. Where it passes but the case is out of what is built, run throws
  /// Unimplemented
  /// ("... is not built yet").
  void (*validate)(const Case&, const TensorFile&);
  void (*run)(const Case&, const TensorFile&, RankContext&, CaseResults&);
  /// False for kinds that compute without tensors and ranks: they run everywhere.
  bool needs_ranks = true;
};

/// Reads one JSON object key by key; every complaint names `where` and the key.
class ObjectReader {
 public:
  /// Throws InvalidArgument unless `object` is an object.
  ObjectReader(const Json& object, std::string where);

  bool has(std::string_view key) const { return object_.contains(key); }
  /// These throw InvalidArgument where the key is missing or of another type.
  std::int64_t integer(std::string_view key);
  double number(std::string_view key);
  bool boolean(std::string_view key);
  std::string string(std::string_view key);
  /// A number stands for a list of one.
  std::vector<std::int64_t> integers(std::string_view key);
  const Json& value(std::string_view key);

  std::int64_t integer_or(std::string_view key, std::int64_t other);
  double number_or(std::string_view key, double other);
  bool boolean_or(std::string_view key, bool other);
  std::string string_or(std::string_view key, const std::string& other);

  /// Throws InvalidArgument naming the first key that was never asked for.
  void finish() const;

 private:
  const Json& object_;
  std::string where_;
  std::vector<std::string> asked_;
};

/// "inputs" of the case: each has a name and one placement per mesh dim, or a value. Throws
/// InvalidArgument.
std::vector<CaseInput> read_inputs(const Case&, const char* key = "inputs");

/// A list of placements for a tensor of `ndim` dims on `mesh`, dims made positive. Throws
/// InvalidArgument naming the text that is wrong.
planner::Placements read_placements(const Json&, const planner::MeshLayout& mesh, int ndim,
                                    const std::string& where);

}  // namespace meshloom::conformance
