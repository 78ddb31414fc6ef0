// SPDX-License-Identifier: Apache-2.0
#include "tests/conformance/sharded_sdpa.h"

#include "daemon/dtensor/api/from_local.h"
#include "daemon/dtensor/api/to_local.h"
#include "daemon/dtensor/without_partial.h"
#include "daemon/tensor/autograd/backward.h"
#include "kernels/base/error.h"
#include "tests/conformance/spec_tensors.h"

namespace meshloom::conformance {
namespace {

using planner::Placement;

class ShardedSdpa {
 public:
  ShardedSdpa(const TensorFile& file, RankContext& rank, CaseResults& results)
      : file_(file),
        rank_(rank),
        results_(results),
        device_mesh_(rank.world, rank.mesh),
        engine_({device_mesh_, plans_}) {}

  void run(ops::SdpaOptions options) {
    const Tensor q = load("q"), k = load("k"), v = load("v");
    if (file_.has("in.bias")) options.bias = load("bias");
    if (file_.has("in.document_ids")) options.document_ids = load("document_ids");
    device_mesh_.reset_counters();
    const ops::SdpaResult result = ops::scaled_dot_product_attention(q, k, v, options);
    store_counters(device_mesh_.counters(), "forward", results_);
    const Tensor o = store("o", result.o);
    store("lse", result.lse);
    backward(o);
  }

 private:
  struct Input {
    std::string name;
    Tensor local;
    planner::SpecPtr spec;
  };

  /// Dims of [B, H, S, D] (a bias may lack leading ones) that are sharded: those of the batch over
  /// dp, of the heads over tp, where there are as many.
  planner::Placements placements(const Shape& shape, std::int64_t batch, int missing) const {
    planner::Placements result;
    for (const planner::MeshDim& dim : rank_.mesh.dims()) {
      if (dim.name != "dp" && dim.name != "tp")
        throw Unimplemented(fmt::format("sdpa on mesh dim {} without context_parallel", dim.name));
      const int at = (dim.name == "dp" ? 0 : 1) - missing;
      const bool batch_of_documents = shape.size() == 2 && missing == 0;
      const bool there = at >= 0 && shape[at] > 1 && (dim.name == "dp" || !batch_of_documents);
      const bool enough = there && (dim.name == "tp" || shape[at] == batch) &&
                          (dim.name == "dp" || shape[at] >= dim.size);
      result.push_back(enough ? Placement::shard(at) : Placement::replicate());
    }
    return result;
  }

  Tensor load(const std::string& name) {
    const Tensor whole = file_.load(rank_.context, "in." + name);
    const Shape shape = whole.shape();
    const int missing = name == "bias" ? 4 - shape.size() : 0;
    const auto spec = engine_.intern(std::make_shared<const planner::DTensorSpec>(
        device_mesh_.layout(), placements(shape, file_.shape("in.q")[0], missing), shape));
    Tensor local = scatter_global(whole, *spec, rank_);
    if (file_.has("grad." + name) && file_.has("grad_out.o")) {
      local.set_requires_grad(true);
      inputs_.push_back({name, local, spec});
    }
    return dtensor::from_local(local, engine_, spec);
  }

  /// Returns the local tensor.
  Tensor store(const std::string& name, const Tensor& value) {
    const planner::SpecPtr spec = value.layout()->spec;
    const Tensor local = dtensor::to_local(value);
    results_.placements[name] = spec->placements();
    results_.local_shapes[name] = local.shape();
    results_.tensors["out." + name] = gather_global(local.detach(), *spec, rank_);
    if (name == "o") o_spec_ = spec;
    return local;
  }

  void backward(const Tensor& o) {
    if (!file_.has("grad_out.o")) return;
    const Tensor outputs[] = {o};
    const Tensor grads[] = {scatter_global(file_.load(rank_.context, "grad_out.o"),
                                           *dtensor::without_partial(o_spec_), rank_)};
    device_mesh_.reset_counters();
    autograd::backward(outputs, grads);
    store_counters(device_mesh_.counters(), "backward", results_);
    for (const Input& in : inputs_) {
      const Tensor grad = in.local.grad();
      results_.tensors["grad." + in.name] = gather_global(
          grad ? grad : zeros(rank_.context, in.local.shape(), DType::kFloat32), *in.spec, rank_);
    }
  }

  const TensorFile& file_;
  RankContext& rank_;
  CaseResults& results_;
  dtensor::DeviceMesh device_mesh_;
  planner::PlanCache plans_;
  dtensor::DistributedEngine engine_;
  std::vector<Input> inputs_;
  planner::SpecPtr o_spec_;
};

}  // namespace

void run_sharded_sdpa(const TensorFile& file, RankContext& rank, ops::SdpaOptions options,
                      CaseResults& results) {
  ShardedSdpa(file, rank, results).run(std::move(options));
}

}  // namespace meshloom::conformance
