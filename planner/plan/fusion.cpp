// SPDX-License-Identifier: Apache-2.0
#include "planner/plan/fusion.h"

#include <algorithm>
#include <array>

#include "planner/name_pattern.h"

namespace meshloom::planner {
namespace {

constexpr std::array<const char*, 3> kNames = {"auto", "force", "forbid"};

/// What was measured up to a size, on CPUs.
struct Row {
  FusedProduct product;
  std::int64_t most_bytes;
  double speedup;  ///< seconds of collective and product apart over those fused
  bool same_bits;  ///< in forward and backward
};

constexpr double kWorthwhile = 1.02;
constexpr std::int64_t kMiB = std::int64_t{1} << 20;

// Medians of `meshloom-bench fused --ranks 2 --threads 1` in float32 over the layers of GPT-2 124M
// and a Llama of 1B, at 128, 384 and 1024 tokens. Bits differ: a result that is scattered is made
// of products of fewer rows and takes its bias after the sum, and the gradient of an input that was
// gathered for several layers is one sum of their products.
constexpr Row kRows[] = {
    {FusedProduct::kGather, kMiB, 1.02, false},
    {FusedProduct::kGather, 4 * kMiB, 1.00, false},
    {FusedProduct::kGather, INT64_MAX, 0.94, false},
    {FusedProduct::kScatter, kMiB, 0.97, false},
    {FusedProduct::kScatter, 4 * kMiB, 1.03, false},
    {FusedProduct::kScatter, INT64_MAX, 1.01, false},
};

bool pays(const Row& row) { return row.same_bits && row.speedup >= kWorthwhile; }

}  // namespace

const char* to_string(FusionMode mode) { return kNames[static_cast<std::size_t>(mode)]; }

std::optional<FusionMode> find_fusion_mode(std::string_view name) {
  for (std::size_t i = 0; i < kNames.size(); ++i)
    if (name == kNames[i]) return static_cast<FusionMode>(i);
  return std::nullopt;
}

FusionMode fusion_mode(const FusionPlan& plan, std::string_view module) {
  std::vector<std::string> patterns;
  for (const FusionChoice& choice : plan.choices) patterns.push_back(choice.pattern);
  const auto best = best_pattern(patterns, module);
  return best ? plan.choices[*best].mode : plan.mode;
}

bool fusion_pays(FusedProduct product, std::int64_t bytes) {
  for (const Row& row : kRows)
    if (row.product == product && bytes <= row.most_bytes) return pays(row);
  return false;
}

bool fusion_ever_pays(FusedProduct product) {
  return std::any_of(std::begin(kRows), std::end(kRows),
                     [&](const Row& row) { return row.product == product && pays(row); });
}

}  // namespace meshloom::planner
