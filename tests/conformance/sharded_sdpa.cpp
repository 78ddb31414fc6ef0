// SPDX-License-Identifier: Apache-2.0
#include "tests/conformance/sharded_sdpa.h"

#include "daemon/dtensor/api/from_local.h"
#include "daemon/dtensor/api/to_local.h"
#include "daemon/dtensor/redistribute_specs.h"
#include "daemon/parallel/context_parallel/context_attention.h"
#include "daemon/tensor/autograd/backward.h"
#include "kernels/base/error.h"
#include "tests/conformance/spec_tensors.h"

namespace meshloom::conformance {
namespace {

using planner::Placement;

class ShardedSdpa {
 public:
  ShardedSdpa(const TensorFile& file, RankContext& rank,
              const std::optional<ContextParallelCase>& context_parallel, CaseResults& results)
      : file_(file),
        rank_(rank),
        context_parallel_(context_parallel),
        results_(results),
        device_mesh_(rank.world, rank.mesh),
        engine_({device_mesh_, plans_}) {
    if (!context_parallel_) return;
    const std::string& name = context_parallel_->mesh_dim;
    sequence_ = device_mesh_.layout()->find_dim(name);
    check(sequence_.has_value(), "context_parallel: there is no mesh dim '{}' in {}", name,
          *device_mesh_.layout());
    parallel::enable_context_parallel(engine_, context_parallel_->plan,
                                      parallel::SequenceDealer::kBalancer);
  }

  void run(ops::SdpaOptions options) {
    deal_sequence(options);
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

  /// The orders in which ranks hold queries and keys.
  void deal_sequence(const ops::SdpaOptions& options) {
    if (!sequence_) return;
    const Shape q = file_.shape("in.q"), k = file_.shape("in.k");
    const planner::LoadBalancer balancer = context_parallel_->plan.load_balancer;
    const std::int64_t shift = options.causal_bottom_right ? k[2] - q[2] : 0;
    planner::RowMask row{{options.is_causal, shift, options.window_left, options.window_right}, {}};
    std::vector<planner::RowMask> rows(static_cast<std::size_t>(q[0]), row);
    if (file_.has("in.document_ids")) {
      const Tensor ids = file_.load(rank_.context, "in.document_ids");
      check(ids.shape() == Shape{q[0], q[2]} && q[2] == k[2],
            "context_parallel: document_ids of shape {} for q {} and k {}", ids.shape(), q, k);
      const std::vector<double> values = ids.to_vector();
      const std::vector<std::int64_t> all(values.begin(), values.end());
      for (std::int64_t b = 0; b < q[0]; ++b)
        rows[static_cast<std::size_t>(b)].documents =
            std::make_shared<const planner::SequenceDocuments>(std::span(all).subspan(
                static_cast<std::size_t>(b * q[2]), static_cast<std::size_t>(q[2])));
    }
    const int ranks = device_mesh_.layout()->dims()[static_cast<std::size_t>(*sequence_)].size;
    query_order_ = planner::balanced_order(balancer, q[2], ranks, 0, rows);
    key_order_ = planner::balanced_order(balancer, k[2], ranks, 0, rows);
  }

  /// Dims of [B, H, S, D] (a bias may lack leading ones) that are sharded: those of the batch over
  /// dp, of the heads over tp, where there are as many, and the sequence.
  planner::Placements placements(const std::string& name, const Shape& shape, std::int64_t batch,
                                 int missing) const {
    planner::Placements result;
    for (const planner::MeshDim& dim : rank_.mesh.dims()) {
      if (context_parallel_ && dim.name == context_parallel_->mesh_dim) {
        result.push_back(sequence_placement(name, shape, missing));
        continue;
      }
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

  /// Documents are whole on every rank, and so is a bias that has no rows by query, or whose rows
  /// are one batch row for several orders.
  Placement sequence_placement(const std::string& name, const Shape& shape, int missing) const {
    const int at = 2 - missing;
    const bool by_row = query_order_ && query_order_->by_row();
    const bool rows = name != "bias" || (at >= 0 && shape[at] == file_.shape("in.q")[2] &&
                                         (!by_row || (missing == 0 && shape[0] != 1)));
    return name == "document_ids" || !rows ? Placement::replicate() : Placement::shard(at);
  }

  std::vector<planner::DimOrderPtr> dim_orders(const std::string& name,
                                               const planner::Placements& placements) const {
    std::vector<planner::DimOrderPtr> orders(placements.size());
    if (!sequence_) return {};
    const auto at = static_cast<std::size_t>(*sequence_);
    if (placements[at] != Placement::replicate())
      orders[at] = name == "k" || name == "v" ? key_order_ : query_order_;
    return orders;
  }

  Tensor load(const std::string& name) {
    const Tensor whole = file_.load(rank_.context, "in." + name);
    const Shape shape = whole.shape();
    const int missing = name == "bias" ? 4 - shape.size() : 0;
    const planner::Placements held = placements(name, shape, file_.shape("in.q")[0], missing);
    const auto spec = engine_.intern(std::make_shared<const planner::DTensorSpec>(
        device_mesh_.layout(), held, shape, planner::ShardOrder{}, dim_orders(name, held)));
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
  const std::optional<ContextParallelCase>& context_parallel_;
  CaseResults& results_;
  dtensor::DeviceMesh device_mesh_;
  planner::PlanCache plans_;
  dtensor::DistributedEngine engine_;
  std::vector<Input> inputs_;
  planner::SpecPtr o_spec_;
  std::optional<int> sequence_;  ///< its mesh dim
  planner::DimOrderPtr query_order_, key_order_;
};

}  // namespace

void run_sharded_sdpa(const TensorFile& file, RankContext& rank, ops::SdpaOptions options,
                      const std::optional<ContextParallelCase>& context_parallel,
                      CaseResults& results) {
  ShardedSdpa(file, rank, context_parallel, results).run(std::move(options));
}

}  // namespace meshloom::conformance
