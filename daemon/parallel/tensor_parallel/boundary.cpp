// SPDX-License-Identifier: Apache-2.0
#include "daemon/parallel/tensor_parallel/boundary.h"

#include <algorithm>

#include "daemon/dtensor/api/from_local.h"
#include "daemon/dtensor/api/redistribute_tensor.h"
#include "daemon/dtensor/api/to_local.h"
#include "kernels/base/error.h"

namespace meshloom::parallel {
namespace {

using planner::ArgumentRule;
using planner::SpecPtr;

/// Shapes that come and go (a sequence that grows by generation) must not fill memory.
constexpr std::size_t kMostKnown = 64;

}  // namespace

bool Boundary::empty() const {
  return std::all_of(rules_.begin(), rules_.end(), [](const ArgumentRule& rule) {
    return !rule.given && !rule.desired && !rule.to_local;
  });
}

void Boundary::apply(std::span<Tensor> tensors) {
  for (std::size_t i = 0; i < std::min(tensors.size(), rules_.size()); ++i) {
    Tensor& x = tensors[i];
    const ArgumentRule& rule = rules_[i];
    if (!x || (!x.has_layout() && !rule.given)) continue;
    if (!x.has_layout()) {
      try {
        const SpecPtr given = planner::given_spec(rule, x.shape(), mesh_.dims);
        x = dtensor::from_local(x, mesh_.engine, mesh_.engine.intern(given));
      } catch (const InvalidArgument& error) {
        throw InvalidArgument(fmt::format("{}: {}", where_, error.what()));
      }
    }
    if (rule.desired) {
      const SpecPtr from = x.layout()->spec, to = target(x, rule);
      const bool summands = rule.partial_grad && !rule.to_local;
      if (from != to)
        x = dtensor::redistribute(x, to, {},
                                  summands ? planner::gathered_gradient(from, to) : nullptr);
    }
    if (rule.to_local) x = dtensor::to_local(x);
  }
}

SpecPtr Boundary::target(const Tensor& x, const ArgumentRule& rule) {
  const SpecPtr& from = x.layout()->spec;
  for (const Known& known : known_)
    if (known.from == from && known.rule == &rule) return known.to;
  SpecPtr to;
  try {
    to = planner::desired_spec(rule, from, mesh_.dims);
    if (to != from) to = mesh_.engine.intern(to);
  } catch (const InvalidArgument& error) {
    throw InvalidArgument(fmt::format("{}: {}", where_, error.what()));
  }
  if (known_.size() >= kMostKnown) known_.clear();
  known_.push_back({from, &rule, to});
  return to;
}

}  // namespace meshloom::parallel
