// SPDX-License-Identifier: Apache-2.0
#include "tests/conformance/unbuilt_kinds.h"

#include <algorithm>

#include "kernels/base/error.h"

namespace meshloom::conformance {
namespace {

void run_unbuilt(const Case& c, const TensorFile&, RankContext&, CaseResults&) {
  throw Unimplemented(fmt::format("kind {} is not built yet", c.kind));
}

/// "[[tensor_dim, [mesh dims in order]], ...]": each entry names exactly the mesh dims that shard
/// that tensor dim.
void check_order(const Case& c, const char* key, const planner::Placements& placements) {
  if (!c.keys.contains(key)) return;
  const Json& order = c.keys.at(key);
  check(order.is_array(), "{} must be a list, not {}", key, order.dump());
  for (const Json& entry : order) {
    const bool fits = entry.is_array() && entry.size() == 2 && entry[0].is_number_integer() &&
                      entry[1].is_array() &&
                      std::all_of(entry[1].begin(), entry[1].end(),
                                  [](const Json& d) { return d.is_number_integer(); });
    check(fits, "{}: an entry must be [tensor_dim, [mesh dims]], not {}", key, entry.dump());
    std::vector<std::int64_t> named = entry[1].get<std::vector<std::int64_t>>();
    std::vector<std::int64_t> sharding;
    for (std::size_t d = 0; d < placements.size(); ++d)
      if (placements[d].is_shard() && placements[d].dim == entry[0].get<std::int64_t>())
        sharding.push_back(static_cast<std::int64_t>(d));
    std::sort(named.begin(), named.end());
    check(named == sharding,
          "{} gives the shard order {} for tensor dim {}, which the mesh dims [{}] shard", key,
          entry[1].dump(), entry[0].dump(), fmt::join(sharding, ", "));
  }
}

void check_layouts(const Case& c, int ndim) {
  for (const char* key : {"from", "to"}) {
    check(c.keys.contains(key), "a case of kind {} needs the key '{}'", c.kind, key);
    const planner::Placements placements = read_placements(c.keys.at(key), c.mesh, ndim, key);
    check_order(c, std::string(key) == "from" ? "from_order" : "to_order", placements);
  }
}

void validate_redistribute(const Case& c, const TensorFile& file) {
  check_layouts(c, file.shape("in.x").size());
}

void validate_symm_mem(const Case& c, const TensorFile&) {
  ObjectReader(c.keys, "case").string("op");
}

void validate_module(const Case& c, const TensorFile& file) {
  ObjectReader module(ObjectReader(c.keys, "case").value("module"), "module");
  module.string("type");
  for (const char* key : {"inputs", "outputs"})
    for (const CaseInput& input : read_inputs(c, key))
      if (std::string(key) == "inputs" && !input.is_number()) file.shape("in." + input.name);
}

}  // namespace

const Kind& redistribute_kind() {
  static const Kind kind{"redistribute",
                         {"from", "to", "from_order", "to_order", "planner"},
                         validate_redistribute,
                         run_unbuilt};
  return kind;
}

const Kind& symm_mem_kind() {
  static const Kind kind{
      "symm_mem", {"op", "attributes", "algorithm"}, validate_symm_mem, run_unbuilt};
  return kind;
}

const Kind& module_kind() {
  static const Kind kind{
      "module", {"module", "inputs", "outputs", "plan", "optimizer"}, validate_module, run_unbuilt};
  return kind;
}

}  // namespace meshloom::conformance
