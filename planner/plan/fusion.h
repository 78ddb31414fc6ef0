// SPDX-License-Identifier: Apache-2.0
// FusionPlan: which matrix products of tensor parallelism take their collective along, as a value,
// and the table by which that is decided where a plan leaves it open.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace meshloom::planner {

enum class FusionMode : std::uint8_t {
  kAuto,    ///< as the table says
  kForce,   ///< always; an error where it cannot be
  kForbid,  ///< never
};
inline constexpr const char* kFusionModeNames = "auto, force or forbid";
const char* to_string(FusionMode mode);
std::optional<FusionMode> find_fusion_mode(std::string_view name);

/// The modules that a pattern names fuse by this mode.
struct FusionChoice {
  std::string pattern;
  FusionMode mode = FusionMode::kAuto;

  bool operator==(const FusionChoice&) const = default;
};

struct FusionPlan {
  FusionMode mode = FusionMode::kAuto;     ///< of all modules, but for
  std::vector<FusionChoice> choices = {};  ///< these
  /// Backward keeps a rank's part of a gathered input and gathers it again.
  bool gather_again = false;

  bool operator==(const FusionPlan&) const = default;
};

/// Returns the mode of the module of this name, which the best pattern decides. Throws
/// InvalidArgument as best_pattern.
FusionMode fusion_mode(const FusionPlan& plan, std::string_view module);

/// A product takes one of these along. The backward of each is a product that takes the other.
enum class FusedProduct : std::uint8_t {
  kGather,   ///< the gathering of its input
  kScatter,  ///< the summing and scattering of its result
};

/// This is the version of the table in fusion.cpp, and grows whenever a row of it changes.
inline constexpr int kFusionTableVersion = 1;
/// Tells whether kAuto fuses a product that gathers or scatters so many bytes, both directions
/// together. It never does where bits would differ from those of the product and the collective
/// apart.
bool fusion_pays(FusedProduct product, std::int64_t bytes);
/// Tells whether it does at any size.
bool fusion_ever_pays(FusedProduct product);

}  // namespace meshloom::planner
