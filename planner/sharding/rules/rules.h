// SPDX-License-Identifier: Apache-2.0
// The rules by op family, and what they share. One file per family.
#pragma once

#include <fmt/format.h>

#include <initializer_list>
#include <string>

#include "kernels/base/error.h"
#include "planner/sharding/rule.h"

namespace meshloom::planner::rules {

OpRule elementwise(const OpCall&);  ///< unary, binary, where, masked_fill, dropout, swiglu, tri
OpRule reduction(const OpCall&);    ///< sum, mean, amax, var
OpRule rows(const OpCall&);         ///< softmax, log_softmax, norms
OpRule matrices(const OpCall&);     ///< matmul, bmm, addmm, linear
OpRule vocabulary(const OpCall&);   ///< embedding, cross_entropy, linear_cross_entropy
OpRule attention(const OpCall&);    ///< attention, of rows, rope
OpRule views(const OpCall&);        ///< transpose, permute, unsqueeze, squeeze, expand, contiguous
OpRule reshape(const OpCall&);
OpRule pieces(const OpCall&);  ///< slice, split, cat

// --- Shared
/// Shape of an input that must be there.
const Shape& shape_of(const OpCall& call, int input);
bool has_input(const OpCall& call, int input);
/// Returns "[2, 3] [S(0)], [3] [R]"
std::string describe_inputs(const OpCall& call);
/// Throws InvalidArgument "OP: what; inputs ...".
[[noreturn]] void refuse(const OpCall& call, const std::string& what);
template <typename... Args>
void require(const OpCall& call, bool condition, fmt::format_string<Args...> format,
             Args&&... args) {
  if (!condition) [[unlikely]]
    refuse(call, fmt::format(format, std::forward<Args>(args)...));
}
/// Reads an attribute that names a dim, 0 <= dim < ndim.
int dim_attribute(const OpCall& call, std::int64_t dim, int ndim);

/// Adds the axis of `size` that input i shows in dim inputs[i] (-1: not), output j in outputs[j].
ShardAxis& add_axis(OpRule& rule, std::int64_t size, std::initializer_list<int> inputs,
                    std::initializer_list<int> outputs);
/// Lets every input be P(op) and every output P(op), for each op of the list.
void pass_partial(OpRule& rule, const OpCall& call, std::initializer_list<PartialOp> ops);
/// Adds a strategy: input `input` P(op), every other R, every output P(op).
PartialStrategy& add_partial(OpRule& rule, const OpCall& call, std::initializer_list<int> inputs,
                             PartialOp op);
inline constexpr std::initializer_list<PartialOp> kLinearOps = {PartialOp::kSum, PartialOp::kAvg};
inline constexpr std::initializer_list<PartialOp> kAllOps = {PartialOp::kSum, PartialOp::kAvg,
                                                             PartialOp::kMax, PartialOp::kMin};

}  // namespace meshloom::planner::rules
