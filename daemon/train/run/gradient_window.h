// SPDX-License-Identifier: Apache-2.0
// GradientWindow: what the calls of forward_backward since the last optimizer step have in common.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "v1/step.pb.h"

namespace meshloom::train {

inline constexpr const char* kGradientsPoisoned = "GRADIENTS_POISONED";

/// GradientWindow is the same on every rank, without collectives.
class GradientWindow {
 public:
  /// Returns how many samples all calls had.
  std::int64_t samples() const { return samples_; }
  bool empty() const { return !reduction_; }

  /// Checks a call before it adds its gradients. Throws InvalidArgument with the field "reduction"
  /// or "tokens" if it is reduced otherwise than those before it.
  void check(const v1::LossBatch& batch) const;
  /// A call that passed check() adds its gradients; its targets that count are `tokens`.
  void add(const v1::LossBatch& batch, std::int64_t samples, std::int64_t tokens);
  /// Returns how many targets of all calls count.
  std::int64_t counted() const { return counted_; }
  /// Returns the mean over counted() targets of the loss of all calls, given that loss reduced as
  /// their gradients are.
  double mean_of(double reduced) const;
  /// Returns the factor by which a call multiplies its gradients at once.
  static float scale(const v1::LossBatch& batch);

  /// Poisons the window. The first cause counts.
  void poison(const std::string& cause);
  /// Returns the factor by which the gradients of all calls are multiplied at the optimizer step,
  /// after which the window is empty, whatever this throws: FailedPrecondition without gradients
  /// (NO_GRADIENTS), with poisoned ones (kGradientsPoisoned), and if a mean is over no target
  /// (NO_TARGETS).
  double close();

 private:
  struct Reduction {
    bool mean = false;
    std::int64_t tokens = 0;  ///< given with each call; 0: they are counted
  };
  static Reduction reduction_of(const v1::LossBatch& batch);

  std::optional<Reduction> reduction_;
  std::int64_t samples_ = 0, counted_ = 0;
  std::optional<std::string> poison_;
};

}  // namespace meshloom::train
