// SPDX-License-Identifier: Apache-2.0
// ParallelModel: a model whose parameters are sharded over tp and whose sequences are sharded over
// cp, seen from one rank.
//
// Only the mesh of the ranks that share samples (dims cp and tp) has to do with layouts. Data
// parallelism and fully_shard work on what this gives them: plain local parameters, plain batches,
// plain losses.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "daemon/dtensor/device_mesh.h"
#include "daemon/nn/models/host_batch.h"
#include "daemon/nn/models/model.h"
#include "daemon/tensor/host_uploads.h"
#include "planner/dtensor_spec.h"
#include "planner/plan/parallel_plan.h"

namespace meshloom::parallel {

/// LocalParameter is one parameter as this rank holds it.
struct LocalParameter {
  std::string name;          ///< of the model
  nn::Parameter* parameter;  ///< its value is a plain leaf: this rank's part
  planner::SpecPtr spec;     ///< over the mesh; null: whole on every rank
};

/// Styles act along the mesh dim tp. Every rank of the mesh makes one, at the same moment and with
/// the same plan. The model is not used after this object is gone: its hooks and layouts belong to
/// it.
///
/// Over cp, a batch with labels is sharded along its sequence as the plan's balancer deals it (by
/// the documents of each row, if it has any), on the host (place) or, of plain tensors, in front of
/// the model; a batch without labels is computed by every rank of cp alike. When a sequence is
/// decoded, each rank keeps its share of the cache and attends to that, and computes its share of a
/// long prompt.
class ParallelModel {
 public:
  /// Shards the parameters of `model` (which outlives this) as the plan says: each becomes a tensor
  /// with a layout whose local part is a copy, so values are to be there already or to be filled in
  /// later through local_parameters(). From here on the model's own functions (loss, logits,
  /// decode) take the same plain tensors on all ranks of the mesh, which call them together, and
  /// give plain tensors that are the same on all; backward leaves gradients at the local
  /// parameters, where ranks of cp have summands. `mesh` null, or of one rank: nothing changes and
  /// all functions still work. Throws InvalidArgument, the same on every rank, for a plan that does
  /// not fit the model. Ranks meet only where the plan has products fused:
  /// FailedPrecondition (SYMM_MEM_UNAVAILABLE) then, where the ranks of tp do not share memory.
  ParallelModel(nn::Model& model, dtensor::DeviceMesh* mesh, const planner::ParallelPlan& plan);
  ~ParallelModel();
  ParallelModel(const ParallelModel&) = delete;
  ParallelModel& operator=(const ParallelModel&) = delete;

  nn::Model& model() const { return model_; }
  /// Returns what the model is to be given of a batch with labels, which is the same on all ranks
  /// of the mesh and has rows: over cp this rank's tokens with their layouts, else all of them. The
  /// way of those who have their batches on the host: plain tensors go whole to every rank of cp.
  nn::Batch place(const nn::HostBatch& host);
  /// Returns the parameters in the order of the model's. Of some gradients the ranks hold summands
  /// after backward (tensor_parallel/partial_gradients.h).
  const std::vector<LocalParameter>& local_parameters() const { return parameters_; }
  std::vector<nn::NamedParameter> named_local_parameters() const;
  /// Takes and touches memory for what products that are fused exchange, of so many bytes on each
  /// rank of tp, so that no step does. Every rank of the mesh calls it with the same size; nothing
  /// happens without such products. Throws ResourceExhausted on all ranks of tp where one has no
  /// memory.
  void reserve_workspace(std::int64_t bytes);
  /// Returns patterns that matched nothing, as texts that name near misses.
  const std::vector<std::string>& warnings() const { return warnings_; }

 private:
  struct Impl;
  nn::Model& model_;
  HostUploads uploads_;
  std::vector<LocalParameter> parameters_;
  std::vector<std::string> warnings_;
  std::unique_ptr<Impl> impl_;
};

}  // namespace meshloom::parallel
