// SPDX-License-Identifier: Apache-2.0
// RecordingEngine: a layout engine that notes ops instead of running them.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <unordered_map>
#include <vector>

#include "daemon/tensor/layout.h"
#include "planner/estimate/model_graph.h"

namespace meshloom::nn {

/// Its mesh has one rank. What it returns has a shape and a dtype, and no memory. Used by one
/// thread, as the context, which it outlives no longer than its tensors.
class RecordingEngine final : public LayoutEngine {
 public:
  explicit RecordingEngine(ExecutionContext& context);

  /// Returns a tensor of this engine that is there before what is recorded: a batch's.
  Tensor input(const Shape& shape, DType dtype);
  /// Makes a tensor that stands for the parameter of a module, by the numbers of
  /// planner::ModelModules; it takes part in all recordings.
  Tensor parameter(const Tensor& value, int module, int index);

  /// Notes that the forward of a module begins, and gives it tensors of its own to work on.
  void enter(int module, int layer, std::span<Tensor> inputs);
  void leave(std::span<Tensor> outputs);

  /// Returns what was recorded since the last call, with no runs.
  planner::ModelGraph take();

  std::vector<Tensor> run(planner::OpId op, std::span<const Tensor* const> inputs,
                          const planner::OpAttributes& attributes, OpOptions options,
                          const LocalOp& local) override;
  planner::SpecPtr intern(const planner::SpecPtr& spec) override { return spec; }
  planner::SpecPtr gradient_of(const planner::SpecPtr& spec) override { return spec; }
  Tensor redistribute(const Tensor& x, const planner::SpecPtr&) override { return x; }

 private:
  struct Live {
    const TensorImpl* address;  ///< of `tensor`, while that is there
    std::weak_ptr<TensorImpl> tensor;
    int name;
  };
  struct Place {
    int module, layer;
  };
  struct KeyHash {
    std::size_t operator()(const std::vector<std::int64_t>& key) const;
  };

  Tensor make(const planner::SpecPtr& spec, DType dtype);
  /// Returns the graph's name of a tensor: known, or a new one.
  int name_of(const Tensor& x);
  int add(const Tensor& x, planner::GraphTensor tensor);
  /// Notes which tensors nobody holds any more.
  void release();
  void border(planner::GraphStepKind kind, std::span<Tensor> tensors);
  planner::GraphStep& step(planner::GraphStepKind kind);
  const std::vector<planner::SpecPtr>& outputs_of(const planner::OpCall& call);

  ExecutionContext& context_;
  planner::MeshPtr mesh_;
  planner::PlanCache plans_;
  planner::ModelGraph graph_;
  std::vector<Live> live_;
  std::unordered_map<const TensorImpl*, planner::GraphTensor> parameters_;
  std::unordered_map<const TensorImpl*, int> names_;  ///< of parameters, in this recording
  std::vector<Place> places_;  ///< modules whose forward runs, from the outside
  /// Layouts of results, by op, attributes and the shapes of inputs.
  std::unordered_map<std::vector<std::int64_t>, std::vector<planner::SpecPtr>, KeyHash> known_;
  std::unordered_map<int, Tensor> locals_;  ///< local tensors, by dtype
};

}  // namespace meshloom::nn
