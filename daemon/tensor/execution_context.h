// SPDX-License-Identifier: Apache-2.0
// What every op needs to know and no global may hold: grad mode, threads, allocator, randomness.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include "daemon/tensor/allocator.h"
#include "kernels/backend.h"

namespace meshloom {

namespace autograd {
class CheckpointFrame;
}
class DeferredChecks;
class PollPoint;

/// There is one per rank, run or test. Tensors carry a pointer to theirs; it outlives them, and
/// trims its allocator at the end. Used by one thread at a time: the rank's training thread.
class ExecutionContext {
 public:
  struct Options {
    Device device = kCpuDevice;
    Threads threads{1};
    std::uint64_t seed = 0;
    std::shared_ptr<Allocator> allocator;  ///< null: one of its own, of the backend's memory
    /// Memory of MemoryKind::kSymmetric comes from this allocator. Null: tensors that ask for it
    /// get the device's own memory, which peers cannot map.
    std::shared_ptr<Allocator> symmetric_allocator = nullptr;
    /// Memory of MemoryKind::kHost comes from this allocator. Null: one of its own.
    std::shared_ptr<Allocator> host_allocator = nullptr;
    kernels::Backend* backend = nullptr;  ///< null: that of the device
    /// The context gives its work to this stream of the backend. Null: one of its own.
    std::shared_ptr<OwnedStream> stream = nullptr;
  };

  ExecutionContext();
  explicit ExecutionContext(Options options);
  ~ExecutionContext();
  ExecutionContext(const ExecutionContext&) = delete;
  ExecutionContext& operator=(const ExecutionContext&) = delete;

  Device device() const { return options_.device; }
  Threads threads() const { return options_.threads; }
  std::uint64_t seed() const { return options_.seed; }
  Allocator& allocator(MemoryKind kind = MemoryKind::kDevice) const {
    if (kind == MemoryKind::kHost) return *options_.host_allocator;
    const bool symmetric = kind == MemoryKind::kSymmetric && options_.symmetric_allocator;
    return symmetric ? *options_.symmetric_allocator : *options_.allocator;
  }
  /// Returns the options that this context was made of, for another one on the same device and
  /// allocators.
  const Options& options() const { return options_; }
  kernels::Backend& backend() const { return *options_.backend; }
  const kernels::KernelContext& kernel_context() const { return kernel_context_; }

  bool grad_enabled() const { return grad_enabled_; }
  void set_grad_enabled(bool enabled) { grad_enabled_ = enabled; }

  /// Is called between ops (each autograd node, each recorded op): where asynchronous collectives
  /// move data. Runs every PollPoint, the oldest first.
  void poll() const;

  /// While true, linear layers give every row of their input the bits that it would get alone.
  bool batch_invariant() const { return batch_invariant_; }
  void set_batch_invariant(bool invariant) { batch_invariant_ = invariant; }

  /// While true, modules describe their parameters (nn/module.h), and models the tables that they
  /// make for themselves, without memory.
  bool defer_parameters() const { return defer_parameters_; }
  void set_defer_parameters(bool defer) { defer_parameters_ = defer; }

  /// Returns where checks of values go that need not be made at once, or null (deferred_checks.h).
  DeferredChecks* deferred_checks() const { return deferred_checks_; }
  void set_deferred_checks(DeferredChecks* checks) { deferred_checks_ = checks; }

  /// Returns the kind of memory in which tensors are made that ask for none of their own; set by
  /// OutputMemory.
  MemoryKind output_memory() const { return output_memory_; }

  /// Numbers autograd nodes in order of recording, and backward runs.
  std::uint64_t next_sequence() { return ++sequence_; }
  /// Returns the activation checkpoint whose segment runs now, or null (autograd/checkpoint.h).
  autograd::CheckpointFrame* checkpoint_frame() const { return checkpoint_frame_; }
  void set_checkpoint_frame(autograd::CheckpointFrame* frame) { checkpoint_frame_ = frame; }

 private:
  class AllocatorWorkspace;
  friend class PollPoint;
  friend class OutputMemory;

  Options options_;
  std::unique_ptr<AllocatorWorkspace> workspace_;
  kernels::KernelContext kernel_context_;
  std::vector<const PollPoint*> poll_points_;
  bool grad_enabled_ = true;
  bool batch_invariant_ = false;
  bool defer_parameters_ = false;
  DeferredChecks* deferred_checks_ = nullptr;
  MemoryKind output_memory_ = MemoryKind::kDevice;
  std::uint64_t sequence_ = 0;
  autograd::CheckpointFrame* checkpoint_frame_ = nullptr;
};

/// While it lives, what ops make lies in memory of a kind: results that will be communicated are
/// written where peers can read them.
class OutputMemory {
 public:
  OutputMemory(ExecutionContext& context, MemoryKind kind)
      : context_(context), before_(context.output_memory_) {
    context_.output_memory_ = kind;
  }
  ~OutputMemory() { context_.output_memory_ = before_; }
  OutputMemory(const OutputMemory&) = delete;
  OutputMemory& operator=(const OutputMemory&) = delete;

 private:
  ExecutionContext& context_;
  MemoryKind before_;
};

/// Runs a function between the ops of a context for as long as it lives. The function may end no
/// poll point.
class PollPoint {
 public:
  PollPoint(ExecutionContext& context, std::function<void()> run)
      : context_(context), run_(std::move(run)) {
    context_.poll_points_.push_back(this);
  }
  ~PollPoint() { std::erase(context_.poll_points_, this); }
  PollPoint(const PollPoint&) = delete;
  PollPoint& operator=(const PollPoint&) = delete;

 private:
  friend class ExecutionContext;

  ExecutionContext& context_;
  std::function<void()> run_;
};

inline void ExecutionContext::poll() const {
  for (std::size_t i = 0; i < poll_points_.size(); ++i) poll_points_[i]->run_();
}

/// Sets gradient recording for a scope.
class GradModeGuard {
 public:
  GradModeGuard(ExecutionContext& context, bool enabled)
      : context_(context), before_(context.grad_enabled()) {
    context_.set_grad_enabled(enabled);
  }
  ~GradModeGuard() { context_.set_grad_enabled(before_); }
  GradModeGuard(const GradModeGuard&) = delete;
  GradModeGuard& operator=(const GradModeGuard&) = delete;

 private:
  ExecutionContext& context_;
  bool before_;
};

/// Turns gradient recording off for a scope.
class NoGradGuard {
 public:
  explicit NoGradGuard(ExecutionContext& context) : guard_(context, false) {}

 private:
  GradModeGuard guard_;
};

/// Makes linear layers batch invariant for a scope: a row's result does not depend on how many rows
/// are computed with it. Backward in the scope is as without it.
class BatchInvariantGuard {
 public:
  BatchInvariantGuard(ExecutionContext& context, bool invariant)
      : context_(context), before_(context.batch_invariant()) {
    context_.set_batch_invariant(invariant);
  }
  ~BatchInvariantGuard() { context_.set_batch_invariant(before_); }
  BatchInvariantGuard(const BatchInvariantGuard&) = delete;
  BatchInvariantGuard& operator=(const BatchInvariantGuard&) = delete;

 private:
  ExecutionContext& context_;
  bool before_;
};

/// Modules made in its scope describe their parameters without memory.
class DeferParametersGuard {
 public:
  explicit DeferParametersGuard(ExecutionContext& context)
      : context_(context), before_(context.defer_parameters()) {
    context_.set_defer_parameters(true);
  }
  ~DeferParametersGuard() { context_.set_defer_parameters(before_); }
  DeferParametersGuard(const DeferParametersGuard&) = delete;
  DeferParametersGuard& operator=(const DeferParametersGuard&) = delete;

 private:
  ExecutionContext& context_;
  bool before_;
};

}  // namespace meshloom
