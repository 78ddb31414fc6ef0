// SPDX-License-Identifier: Apache-2.0
// Reshape. Old and new dims fall into the smallest groups with equal numbers of elements; inside a
// group an old dim and a new one are both [prefix, size, suffix] of the same flat axis.
#include <numeric>
#include <vector>

#include "planner/sharding/rules/rules.h"

namespace meshloom::planner::rules {
namespace {

/// Dims [begin, end) of a shape.
struct Span {
  int begin = 0, end = 0;
};

std::vector<AxisUse> uses_of(const Shape& shape, Span span) {
  std::vector<AxisUse> uses;
  std::int64_t prefix = 1, suffix = 1;
  for (int d = span.begin; d < span.end; ++d) suffix *= shape[d];
  for (int d = span.begin; d < span.end; ++d) {
    suffix /= shape[d];
    if (shape[d] > 1) uses.push_back({d, prefix, suffix});
    prefix *= shape[d];
  }
  return uses;
}

/// One axis per pair of old and new dim: the pair that leads the group, and those that may keep a
/// sharding that is there.
void add_group(OpRule& rule, const DTensorSpec& spec, const Shape& out, Span from, Span to) {
  const Shape& in = spec.shape();
  std::int64_t size = 1;
  for (int d = from.begin; d < from.end; ++d) size *= in[d];
  for (const AxisUse& a : uses_of(in, from)) {
    for (const AxisUse& b : uses_of(out, to)) {
      const bool same = a.prefix == b.prefix && a.suffix == b.suffix;
      const bool leading = a.prefix == 1 && b.prefix == 1;
      if (!same && !leading && spec.sharding_dims(a.dim).empty()) continue;
      // Is there a sharding that falls between elements of both dims?
      const std::int64_t groups = std::lcm(a.prefix, b.prefix);
      if (in[a.dim] % (groups / a.prefix) != 0 || out[b.dim] % (groups / b.prefix) != 0) continue;
      ShardAxis& axis = rule.axes.emplace_back();
      axis.size = same ? in[a.dim] : size;
      axis.inputs = {same ? AxisUse{a.dim} : a};
      axis.outputs = {same ? AxisUse{b.dim} : b};
    }
  }
}

void add_groups(OpRule& rule, const DTensorSpec& spec, const Shape& out) {
  const Shape& in = spec.shape();
  Span from, to;
  while (from.begin < in.size() || to.begin < out.size()) {
    std::int64_t have = 1, want = 1;
    from.end = from.begin;
    to.end = to.begin;
    do {
      if (have <= want && from.end < in.size()) {
        have *= in[from.end++];
      } else if (to.end < out.size()) {
        want *= out[to.end++];
      } else {
        have *= in[from.end++];
      }
    } while (have != want || (have == 1 && (from.end < in.size() || to.end < out.size())));
    add_group(rule, spec, out, from, to);
    from.begin = from.end;
    to.begin = to.end;
  }
}

}  // namespace

OpRule reshape(const OpCall& call) {
  const Shape& in = shape_of(call, 0);
  const Shape& out = call.attributes.dims;
  require(call, numel(in) == numel(out), "shape {} does not hold the {} elements of {}",
          to_string(out), numel(in), to_string(in));
  OpRule rule;
  rule.outputs.push_back(out);
  if (numel(in) > 0) add_groups(rule, *call.inputs[0], out);
  pass_partial(rule, call, kAllOps);
  return rule;
}

}  // namespace meshloom::planner::rules
