// SPDX-License-Identifier: Apache-2.0
// Views that move, add or drop whole dims. All of them pass any Partial.
#include <algorithm>
#include <array>

#include "planner/sharding/rules/rules.h"

namespace meshloom::planner::rules {
namespace {

/// Where dim d of the output comes from in the input; -1: it is new.
using Sources = Dims;

Sources sources_of(const OpCall& call, int ndim) {
  Sources sources;
  for (int d = 0; d < ndim; ++d) sources.push_back(d);
  const auto& ints = call.attributes.ints;
  switch (call.op) {
    case OpId::kTranspose:
      std::swap(sources[dim_attribute(call, ints[0], ndim)],
                sources[dim_attribute(call, ints[1], ndim)]);
      break;
    case OpId::kPermute: {
      require(call,
              std::is_permutation(sources.begin(), sources.end(), call.attributes.dims.begin(),
                                  call.attributes.dims.end()),
              "dims {} are no permutation of {} dims", to_string(call.attributes.dims), ndim);
      return call.attributes.dims;
    }
    case OpId::kUnsqueeze: sources.insert(dim_attribute(call, ints[0], ndim + 1), -1); break;
    case OpId::kSqueeze: break;
    default: break;
  }
  return sources;
}

OpRule squeeze(const OpCall& call) {
  const Shape& x = shape_of(call, 0);
  const int dropped = dim_attribute(call, call.attributes.ints[0], x.size());
  OpRule rule;
  Shape out;
  for (int d = 0; d < x.size(); ++d) {
    // A dim that stays because its size is not 1 must not look droppable on some rank.
    if (d == dropped) {
      if (x[d] != 1) out.push_back(x[d]);
      continue;
    }
    add_axis(rule, x[d], {d}, {out.size()});
    out.push_back(x[d]);
  }
  rule.outputs.push_back(out);
  return rule;
}

OpRule expand(const OpCall& call) {
  const Shape& x = shape_of(call, 0);
  Shape out = call.attributes.dims;
  const int shift = out.size() - x.size();
  require(call, shift >= 0, "shape {} has fewer dims than the input", to_string(out));
  OpRule rule;
  for (int d = 0; d < x.size(); ++d) {
    std::int64_t& size = out[d + shift];
    if (size == -1) size = x[d];
    require(call, x[d] == size || x[d] == 1, "{} does not expand to {}", to_string(x),
            to_string(call.attributes.dims));
    if (x[d] == size) add_axis(rule, size, {d}, {d + shift});
  }
  rule.outputs.push_back(out);
  return rule;
}

OpRule move_dims(const OpCall& call) {
  const Shape& x = shape_of(call, 0);
  const Sources sources = sources_of(call, x.size());
  OpRule rule;
  Shape out;
  for (const std::int64_t source : sources) {
    const int from = static_cast<int>(source);
    if (from >= 0) add_axis(rule, x[from], {from}, {out.size()});
    out.push_back(from >= 0 ? x[from] : 1);
  }
  rule.outputs.push_back(out);
  return rule;
}

}  // namespace

OpRule views(const OpCall& call) {
  OpRule rule = call.op == OpId::kSqueeze  ? squeeze(call)
                : call.op == OpId::kExpand ? expand(call)
                                           : move_dims(call);
  pass_partial(rule, call, kAllOps);
  return rule;
}

}  // namespace meshloom::planner::rules
