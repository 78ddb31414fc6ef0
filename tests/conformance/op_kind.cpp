// SPDX-License-Identifier: Apache-2.0
#include "tests/conformance/op_kind.h"

#include "kernels/base/error.h"
#include "tests/conformance/expect_reader.h"
#include "tests/conformance/local_run.h"
#include "tests/conformance/op_table.h"
#include "tests/conformance/sharded_op.h"

namespace meshloom::conformance {
namespace {

struct ReadCase {
  const OpEntry& op;
  std::vector<CaseInput> inputs;
  BoundOp bound;
};

ReadCase read_case(const Case& c) {
  check(c.keys.contains("op") && c.keys["op"].is_string(), "op: expected the name of an op");
  const OpEntry& op = find_op(c.keys["op"].get<std::string>());
  static const Json kNoAttributes = Json::object();
  const Json& attributes = c.keys.contains("attributes") ? c.keys["attributes"] : kNoAttributes;
  ObjectReader reader(attributes, fmt::format("attributes of {}", op.name));
  BoundOp bound = op.bind(reader);
  reader.finish();
  return {op, read_inputs(c), std::move(bound)};
}

void check_placements(const CaseInput& input, const TensorFile& file) {
  const std::string name = "in." + input.name;
  planner::normalize_placements(input.placements, file.shape(name).size());
  for (const planner::Placement& p : input.placements) {
    const bool averages = p.is_partial() && (p.partial == planner::PartialOp::kSum ||
                                             p.partial == planner::PartialOp::kAvg);
    check(!averages || dtype_is_floating(file.dtype(name)),
          "input {}: {} needs a floating dtype, got {}", input.name, to_string(p),
          dtype_name(file.dtype(name)));
  }
}

void validate(const Case& c, const TensorFile& file) {
  const ReadCase read = read_case(c);
  std::vector<std::optional<DType>> dtypes;
  std::vector<std::string> names;
  for (const CaseInput& input : read.inputs) {
    if (input.is_number()) {
      dtypes.push_back(std::nullopt);
      continue;
    }
    dtypes.push_back(file.dtype("in." + input.name));
    names.push_back(input.name);
    check_placements(input, file);
  }
  check_operands(read.op, dtypes);
  check_gradients(file, names);
}

void run(const Case& c, const TensorFile& file, RankContext& rank, CaseResults& results) {
  const ReadCase read = read_case(c);
  const bool several = read.op.name == "split";
  if (c.mesh.size() > 1) {
    run_sharded(c, file, rank, read.bound, read.inputs, several, results);
    return;
  }
  std::vector<Operand> operands;
  std::vector<NamedTensor> inputs;
  for (const CaseInput& input : read.inputs) {
    if (input.is_number()) {
      operands.push_back({Tensor(), input.value});
      continue;
    }
    inputs.push_back({input.name, load_input(file, rank.context, input.name)});
    operands.push_back({inputs.back().value, 0.0});
  }
  const std::vector<Tensor> values = read.bound(operands);
  std::vector<NamedTensor> outputs;
  for (std::size_t i = 0; i < values.size(); ++i)
    outputs.push_back({several ? fmt::format("y{}", i) : "y", values[i]});
  finish_local(c, file, rank.context, inputs, outputs, results);
}

}  // namespace

const Kind& op_kind() {
  static const Kind kind{"op", {"op", "inputs", "attributes"}, validate, run};
  return kind;
}

}  // namespace meshloom::conformance
