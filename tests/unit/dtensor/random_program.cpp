// SPDX-License-Identifier: Apache-2.0
#include "tests/unit/dtensor/random_program.h"

#include <fmt/format.h>

#include "tests/unit/dtensor/random_steps.h"

namespace meshloom::dtensor {

Tensor Leaf::make(ExecutionContext& context) const {
  const Tensor wide = from_values(context, shape, values, DType::kFloat64);
  if (dtype == DType::kFloat64) return wide;
  Tensor narrow = empty(context, shape, dtype);
  copy_into(narrow, wide);
  return narrow;
}

namespace {

std::string name_of(const Ref& ref) {
  switch (ref.kind) {
    case Ref::Kind::kLeaf: return fmt::format("x{}", ref.index);
    case Ref::Kind::kResult: return fmt::format("t{}", ref.index);
    default: return "none";
  }
}

}  // namespace

std::vector<Tensor> Program::run(const std::vector<Tensor>& made) const {
  std::vector<Tensor> results;
  for (const Step& step : steps) {
    std::vector<Tensor> inputs;
    for (const Ref& ref : step.inputs)
      inputs.push_back(ref.kind == Ref::Kind::kLeaf     ? made[ref.index]
                       : ref.kind == Ref::Kind::kResult ? results[ref.index]
                                                        : Tensor());
    for (Tensor& t : step.run(inputs)) results.push_back(std::move(t));
  }
  return results;
}

std::string Program::to_string() const {
  std::string text;
  std::size_t index = 0;
  for (const Leaf& leaf : leaves)
    text += fmt::format("  x{}: {} {}{}\n", index++, meshloom::to_string(leaf.shape),
                        dtype_name(leaf.dtype), leaf.requires_grad ? " with gradient" : "");
  for (const Step& step : steps) {
    text += "  " + step.text + "(";
    for (const Ref& ref : step.inputs) text += name_of(ref) + " ";
    text += ")\n";
  }
  for (const std::size_t output : outputs) text += fmt::format("  backward from t{}\n", output);
  return text;
}

Program random_program(std::mt19937_64& rng) {
  ProgramBuilder builder(rng);
  const int steps = builder.pick(1, 4);
  builder.start();
  for (int i = 0; i < steps && !builder.ended(); ++i) builder.add_step();
  return builder.finish();
}

}  // namespace meshloom::dtensor
