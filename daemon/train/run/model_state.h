// SPDX-License-Identifier: Apache-2.0
// ModelState: a model with its optimizer on a mesh, and where their values come from.
#pragma once

#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "daemon/nn/models/model.h"
#include "daemon/parallel/data_parallel.h"
#include "daemon/parallel/parallelize_model.h"
#include "daemon/parallel/tensor_parallel/partial_gradients.h"
#include "daemon/train/files/hf_folder.h"
#include "daemon/train/optim/optimizer.h"
#include "daemon/train/run/checkpoint_reader.h"
#include "daemon/train/run/run_mesh.h"

namespace meshloom::train {

struct ModelStateOptions {
  OptimizerSettings optimizer;
  v1::TrainingConfig training = {};  ///< says what is frozen
  planner::ParallelPlan plan;        ///< its dtype is that of computing; masters are float32
};

/// ModelState holds the model in its compute dtype and the optimizer with its float32 masters, this
/// rank's part of them. Memory is taken for that part only, and values are undefined until one of
/// the three ways to fill them was called. Everything is by position: the same on every mesh.
class ModelState {
 public:
  /// No collectives. `mesh` outlives the state. Throws InvalidArgument, on every rank alike, for a
  /// plan that does not fit the model.
  ModelState(ExecutionContext&, const nn::ModelConfig&, const ModelStateOptions&, RunMesh& mesh);

  nn::Model& model() { return *model_; }
  /// Returns what model() is to be given of a batch, as ParallelModel::place does.
  nn::Batch place(const nn::HostBatch& host) { return tensor_model_->place(host); }
  Optimizer& optimizer() { return *optimizer_; }
  parallel::DataParallel& data_parallel() { return *data_parallel_; }
  /// Is called once a step, after data_parallel() has summed the gradients: they are the global
  /// ones then.
  void sum_partial_gradients() { partial_gradients_->sum(); }
  RunMesh& mesh() { return mesh_; }
  /// Returns, by parameter, the layout in which the ranks of the mesh hold it.
  const std::vector<planner::SpecPtr>& specs() const { return specs_; }
  /// Returns one line per kind of parameter: how the ranks of the mesh hold it, and why fully_shard
  /// shards it so (describe_parameters).
  std::string description() const;
  /// Reserves workspace as ParallelModel::reserve_workspace does.
  void reserve_workspace(std::int64_t bytes) { tensor_model_->reserve_workspace(bytes); }
  /// Returns patterns of the plan that match nothing, as texts that name near misses.
  const std::vector<std::string>& warnings() const { return tensor_model_->warnings(); }

  /// Sets the values by position from `seed`, in float32: the same whatever the compute dtype.
  void initialize(std::uint64_t seed);
  /// Loads weights of a Hugging Face folder, kept in float32; moments are zero. A head that the
  /// folder lacks begins as by initialize(seed). Returns what to say of that, in a line; else
  /// empty.
  std::string load_hf(const std::filesystem::path& folder, std::uint64_t seed,
                      base::Disk& disk = base::own_disk());
  /// Loads weights and, if `with_optimizer`, moments of a checkpoint of any mesh; else moments are
  /// zero. Throws FailedPrecondition if it is of another model or optimizer, before anything is
  /// written.
  void load(const CheckpointReader& checkpoint, bool with_optimizer = true);
  /// Throws as load() does before it writes.
  void check(const CheckpointReader& checkpoint, bool with_optimizer) const;
  /// This rank's parts of the weights of a Hugging Face folder, by parameter, in the dtype that the
  /// model computes in. The model stays as it is.
  std::vector<Tensor> read_hf(const std::filesystem::path& folder, base::Disk& disk) const;
  /// Replaces parameter i: `value` is a float32 view of the whole on the host, row-major, the same
  /// on every rank. refresh_working_copies() of the optimizer follows. No collectives.
  void set(std::size_t i, const TensorView& value, HostBlocks& blocks);

  /// Returns the state for checkpoints.
  std::vector<StateTensor> state() const { return optimizer_->state(specs_); }
  /// Writes a Hugging Face folder from the float32 weights. Every rank of the world calls it; rank
  /// 0 writes, and is sent one parameter at a time. What fails on a rank is thrown by all.
  /// `carried`: as in HfSaveOptions.
  void export_hf(const std::filesystem::path& folder, DType dtype,
                 const std::vector<CarriedFile>& carried);
  /// Gathers the whole of a float32 tensor that the ranks hold parts of as they hold parameter i,
  /// on rank 0; undefined on other ranks. Every rank of the world calls it.
  Tensor gather(const Tensor& part, std::size_t i);

 private:
  void initialize(std::size_t i, const nn::NamedParameter& parameter, std::uint64_t seed);
  void shard_parameters(const ModelStateOptions& options);
  /// Returns what a checkpoint has of it: no moments of parameters that were frozen then.
  std::vector<StateTensor> state_to_load(const CheckpointReader& checkpoint,
                                         bool with_optimizer) const;
  Piece held(std::size_t i) const {
    return held_piece(specs_[i]->shape(), specs_[i], mesh_.world().rank());
  }
  void serve_export();

  ExecutionContext& context_;
  RunMesh& mesh_;
  std::unique_ptr<nn::Model> model_;
  std::unique_ptr<parallel::ParallelModel> tensor_model_;
  std::unique_ptr<parallel::DataParallel> data_parallel_;
  std::unique_ptr<parallel::PartialGradients> partial_gradients_;
  std::vector<planner::SpecPtr> specs_;
  std::unique_ptr<Optimizer> optimizer_;
};

}  // namespace meshloom::train
