// SPDX-License-Identifier: Apache-2.0
// DistributedEngine: the layout step of ops, by the local tensors of a mesh.
#pragma once

#include <map>

#include "daemon/dtensor/decision_cache.h"
#include "daemon/dtensor/mesh_collectives.h"
#include "daemon/dtensor/redistribute.h"
#include "daemon/dtensor/spec_table.h"
#include "daemon/tensor/layout.h"

namespace meshloom::dtensor {

/// Ops may do this to inputs whose layout is not one that they take.
enum class Redistributing {
  kFreely,
  kWithoutMessages,  ///< a replicated tensor may be sharded, for example
  kNever,
};

/// There is one per rank and mesh; every rank of the mesh has one and runs the same ops in the same
/// order. Outlives the tensors it laid out. Used by the rank's training thread.
///
/// What an op needs is decided once for its input layouts and attributes, and kept. Gradients: an
/// input that has to be redistributed takes its gradient back with that; one that is Replicate and
/// whose gradient the op leaves Partial goes through an identity whose backward reduces. Both are
/// shared by the uses of one tensor that need the same. A leaf whose first recorded use leaves its
/// gradient Partial keeps it so (TensorLayout::grad_spec). If decisions become very many (a
/// sequence that grows by a token at a time) all are forgotten, with the layouts nobody holds.
class DistributedEngine final : public LayoutEngine {
 public:
  /// Mesh and plans outlive the engine.
  explicit DistributedEngine(const MeshContext& context);

  std::vector<Tensor> run(planner::OpId op, std::span<const Tensor* const> inputs,
                          const planner::OpAttributes& attributes, OpOptions options,
                          const LocalOp& local) override;
  planner::SpecPtr intern(const planner::SpecPtr& spec) override { return specs_.intern(spec); }
  planner::SpecPtr gradient_of(const planner::SpecPtr& spec) override {
    return specs_.gradient_of(spec);
  }
  Tensor redistribute(const Tensor& x, const planner::SpecPtr& to) override;

  /// From now on mesh dims may get these roles in the op, which then runs so, in place of the
  /// implementation that was registered before. Those of ops::distributed_ops() are there from the
  /// start. Every rank registers the same, between ops.
  void register_implementation(const DistributedOp& implementation);
  /// Returns the implementation that is registered for the op; null: none. Stays until another is.
  const DistributedOp* implementation_of(planner::OpId op) const;
  /// Removes the implementation: from now on the op has none.
  void remove_implementation(planner::OpId op);

  const MeshContext& context() const { return context_; }
  /// Returns the number of ops decided so far.
  std::size_t decisions() const { return decisions_.size(); }
  bool implicit_replication() const { return implicit_replication_; }
  void set_implicit_replication(bool allowed) { implicit_replication_ = allowed; }
  Redistributing redistributing() const { return redistributing_; }
  void set_redistributing(Redistributing allowed) { redistributing_ = allowed; }

 private:
  static constexpr std::size_t kMostDecisions = 16384;

  const planner::DTensorSpec* spec_of(planner::OpId op, const Tensor& input);
  const Decided& decide(planner::OpId op, DecisionCache::Specs specs,
                        const planner::OpAttributes& attributes);
  Tensor place(const Tensor& input, const RedistributeSpecs& use);
  void check_explicit(const Decided& decided) const;

  MeshContext context_;
  SpecTable specs_;
  DecisionCache decisions_;
  std::map<planner::OpId, DistributedOp> implementations_;
  MeshCollectives collectives_;
  bool implicit_replication_ = false;
  Redistributing redistributing_ = Redistributing::kFreely;
};

/// While it lives, an op that would redistribute an input throws FailedPrecondition naming the op,
/// the input, its layout and the one that the op would take, on all ranks before any collective:
/// what moves is what the program asks for. `redistribute` is allowed, and gradients are reduced as
/// ever.
class ExplicitRedistribution {
 public:
  explicit ExplicitRedistribution(DistributedEngine& engine,
                                  Redistributing allowed = Redistributing::kNever)
      : engine_(engine), before_(engine.redistributing()) {
    engine.set_redistributing(allowed);
  }
  ~ExplicitRedistribution() { engine_.set_redistributing(before_); }
  ExplicitRedistribution(const ExplicitRedistribution&) = delete;
  ExplicitRedistribution& operator=(const ExplicitRedistribution&) = delete;

 private:
  DistributedEngine& engine_;
  Redistributing before_;
};

/// While it lives, tensors without a layout count as replicated whatever their size: every rank
/// must hold the same values.
class ImplicitReplication {
 public:
  explicit ImplicitReplication(DistributedEngine& engine)
      : engine_(engine), before_(engine.implicit_replication()) {
    engine.set_implicit_replication(true);
  }
  ~ImplicitReplication() { engine_.set_implicit_replication(before_); }
  ImplicitReplication(const ImplicitReplication&) = delete;
  ImplicitReplication& operator=(const ImplicitReplication&) = delete;

 private:
  DistributedEngine& engine_;
  bool before_;
};

}  // namespace meshloom::dtensor
