// SPDX-License-Identifier: Apache-2.0
// DeferredChecks: what ops have to refuse by values in device memory, asked at the end of a step
// and not inside it.
#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "daemon/tensor/host_values.h"
#include "daemon/tensor/tensor.h"

namespace meshloom {

/// An op that must look at values (ids in range, say) computes whether they are right and does not
/// wait for the answer. Whoever runs the step gets the answer with a number that it reads at the
/// end anyway: read() brings both to the host by one wait, and spoil() makes one number of both
/// where that travels on (to other ranks, or to an optimizer), so that the reason is asked for only
/// if it is NaN. Ops between a check that failed and the end of the step compute results of no use,
/// but touch no memory that is not theirs.
class DeferredChecks {
 public:
  /// `value` has one element, which is `expected` if all is right. `raise` reads the device and
  /// throws if it is not; what it holds lives as long as these checks.
  void add(const Tensor& value, double expected, std::function<void()> raise);
  /// Adds NaN to a floating tensor of one element if a check failed; else leaves its bits as they
  /// are. Waits for no device.
  void spoil(const Tensor& value) const;
  /// Throws what the first check that failed throws. Waits for the device, for each check.
  void raise() const;
  /// Throws as raise() does, by one wait for all checks as long as none failed.
  void ask() const;
  /// Returns the elements of `x`, of any strides, in row-major order as `dtype`, after one wait for
  /// the device. Throws as ask(). A NaN in `x` is no check that failed.
  HostValues read(const Tensor& x, DType dtype) const;

 private:
  /// Returns memory of kind kHost for all differences.
  std::shared_ptr<Storage> room(ExecutionContext& context) const;
  void ask_in(const Storage& memory) const;

  /// float64, some of one check each in order, zeros behind the last: found value - expected one.
  std::vector<Tensor> differences_;
  std::vector<std::function<void()>> raises_;
};

/// Checks of ops are deferred for a scope. Without one they are made at once.
class DeferChecksGuard {
 public:
  DeferChecksGuard(ExecutionContext& context, DeferredChecks& checks)
      : context_(context), before_(context.deferred_checks()) {
    context_.set_deferred_checks(&checks);
  }
  ~DeferChecksGuard() { context_.set_deferred_checks(before_); }
  DeferChecksGuard(const DeferChecksGuard&) = delete;
  DeferChecksGuard& operator=(const DeferChecksGuard&) = delete;

 private:
  ExecutionContext& context_;
  DeferredChecks* before_;
};

}  // namespace meshloom
