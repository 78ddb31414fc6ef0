// SPDX-License-Identifier: Apache-2.0
#include "tests/conformance/plan_kind.h"

#include <algorithm>

#include "kernels/base/error.h"
#include "tests/conformance/expect_reader.h"
#include "tests/support/simulate_plan.h"

namespace meshloom::conformance {
namespace {

/// "[[tensor_dim, [mesh dims in order]], ...]"
planner::ShardOrder read_order(const Json& list, const std::string& key) {
  check(list.is_array(), "{} must be a list, not {}", key, list.dump());
  planner::ShardOrder order;
  for (const Json& entry : list) {
    const bool fits = entry.is_array() && entry.size() == 2 && entry[0].is_number_integer() &&
                      entry[1].is_array() &&
                      std::all_of(entry[1].begin(), entry[1].end(),
                                  [](const Json& d) { return d.is_number_integer(); });
    check(fits, "{}: an entry must be [tensor_dim, [mesh dims]], not {}", key, entry.dump());
    order.push_back({entry[0].get<int>(), entry[1].get<std::vector<int>>()});
  }
  return order;
}

Shape read_shape(const Case& c) {
  const std::vector<std::int64_t> sizes = ObjectReader(c.keys, "case").integers("tensor_shape");
  for (const std::int64_t size : sizes)
    check(size >= 0, "tensor_shape must hold sizes, not {}", size);
  return Shape(std::span<const std::int64_t>(sizes));
}

struct PlanCase {
  planner::SpecPtr from, to;
  planner::RedistributeOptions options;
};

PlanCase read_plan_case(const Case& c) {
  const auto mesh = std::make_shared<const planner::MeshLayout>(c.mesh);
  const Shape shape = read_shape(c);
  return {read_layout(c, "from", mesh, shape), read_layout(c, "to", mesh, shape),
          read_planner_options(c)};
}

void validate(const Case& c, const TensorFile&) { read_plan_case(c); }

void run(const Case& c, const TensorFile&, RankContext&, CaseResults& results) {
  const PlanCase read = read_plan_case(c);
  const planner::PlanPtr plan = planner::plan_redistribute(read.from, read.to, read.options);
  results.plan = plan->to_string();
  results.cost = plan->cost;
  CommCounts& counts = results.comm["forward"];
  for (const planner::RedistributeStep& step : plan->steps)
    if (!planner::is_local(step.kind)) ++counts[planner::step_name(step.kind)];
  test::simulate_plan(*plan);
}

}  // namespace

planner::SpecPtr read_layout(const Case& c, const char* key, const planner::MeshPtr& mesh,
                             const Shape& shape) {
  check(c.keys.contains(key), "a case of kind {} needs the key '{}'", c.kind, key);
  const planner::Placements placements = read_placements(c.keys.at(key), *mesh, shape.size(), key);
  const std::string order_key = std::string(key) + "_order";
  planner::ShardOrder order;
  if (c.keys.contains(order_key)) order = read_order(c.keys.at(order_key), order_key);
  return std::make_shared<const planner::DTensorSpec>(mesh, placements, shape, std::move(order));
}

planner::RedistributeOptions read_planner_options(const Case& c) {
  ObjectReader reader(c.keys, "case");
  planner::RedistributeOptions options;
  const std::string planner = reader.string_or("planner", "min_cost");
  check(planner == "greedy" || planner == "min_cost",
        "planner must be greedy or min_cost, not '{}'", planner);
  if (planner == "greedy") options.planner = planner::PlannerKind::kGreedy;
  const std::string model = reader.string_or("cost_model", "bytes");
  check(model == "unit" || model == "bytes", "cost_model must be unit or bytes, not '{}'", model);
  if (model == "unit") options.cost_model = planner::CostModel::kUnit;
  return options;
}

const Kind& plan_kind() {
  static const Kind kind{
      "plan",
      {"tensor_shape", "from", "to", "from_order", "to_order", "planner", "cost_model"},
      validate,
      run,
      false};
  return kind;
}

}  // namespace meshloom::conformance
