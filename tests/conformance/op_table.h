// SPDX-License-Identifier: Apache-2.0
// The tensor ops a case may name, with torch's names, attributes and input order.
#pragma once

#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "daemon/tensor/tensor.h"
#include "tests/conformance/case.h"

namespace meshloom::conformance {

/// An input of an op: a tensor, or a number where the tensor is undefined.
struct Operand {
  Tensor tensor;
  double number = 0.0;
};

/// An op whose attributes have been read.
using BoundOp = std::function<std::vector<Tensor>(std::span<const Operand>)>;

struct OpEntry {
  std::string_view name;
  /// One letter per input: f floating, i int64, b bool, a any dtype, n floating or a number. After
  /// '?' the inputs are optional; a '*' lets the last one repeat.
  std::string_view inputs;
  /// Reads the attributes it knows; throws InvalidArgument for one that is missing or of a wrong
  /// type.
  BoundOp (*bind)(ObjectReader& attributes);
};

/// Throws InvalidArgument naming the op where it is unknown.
const OpEntry& find_op(const std::string& name);

/// Throws InvalidArgument naming op and input unless inputs of these dtypes fit. nullopt stands for
/// a number.
void check_operands(const OpEntry& op, std::span<const std::optional<DType>> dtypes);

}  // namespace meshloom::conformance
