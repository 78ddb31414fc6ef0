// SPDX-License-Identifier: Apache-2.0
// A model of one's own, trained on every mesh of the ranks: layers spread by a tensor parallel
// plan, a layer that no style fits by distribute_module, and all parameters fully sharded. The
// losses are those of one rank.
#include <fmt/ranges.h>

#include "../report.h"
#include "daemon/dtensor/api/collectives.h"
#include "daemon/dtensor/api/from_local.h"
#include "daemon/dtensor/api/to_local.h"
#include "daemon/nn/modules/activation.h"
#include "daemon/nn/modules/linear.h"
#include "daemon/nn/modules/norm.h"
#include "daemon/parallel/data_parallel.h"
#include "daemon/parallel/distribute_module.h"
#include "daemon/parallel/tensor_parallel/parallelize_module.h"
#include "daemon/tensor/autograd/backward.h"
#include "daemon/tensor/ops/elementwise.h"
#include "daemon/tensor/ops/matmul.h"
#include "daemon/tensor/ops/reduce.h"
#include "daemon/tensor/ops/shape.h"
#include "planner/shard.h"

namespace meshloom::examples {
namespace {

using planner::Placement;
using planner::StyleKind;

constexpr std::int64_t kRows = 7, kWidth = 10, kHidden = 23, kBlocks = 2;
constexpr int kSteps = 6;
constexpr double kRate = 0.3;
constexpr std::uint64_t kSeed = 3;

/// x + down(gelu(up(norm(x)))).
class Block final : public nn::Module {
 public:
  explicit Block(ExecutionContext& context)
      : Module(context),
        norm_(context, kWidth, DType::kFloat32, 1e-5),
        up_(context, kWidth, kHidden, DType::kFloat32, {.weight_init = kInit}),
        activation_(context, nn::ActivationKind::kGeluTanh),
        down_(context, kHidden, kWidth, DType::kFloat32, {.weight_init = kInit}) {
    register_module("norm", norm_);
    register_module("up", up_);
    register_module("activation", activation_);
    register_module("down", down_);
  }
  Tensor operator()(const Tensor& x) const {
    return call(x,
                [&](const Tensor& in) { return ops::add(in, down_(activation_(up_(norm_(in))))); });
  }

 private:
  static constexpr nn::Init kInit{nn::Init::Kind::kNormal, 0.3f};
  nn::RmsNorm norm_;
  nn::Linear up_;
  nn::Activation activation_;
  nn::Linear down_;
};

/// A layer of its own kind, which says nothing of how it may be spread: tanh(x A) with A [C,C].
class Mixer final : public nn::Module {
 public:
  explicit Mixer(ExecutionContext& context)
      : Module(context),
        matrix_(register_parameter("matrix", {kWidth, kWidth}, DType::kFloat32,
                                   {nn::Init::Kind::kNormal, 0.3f})) {}
  Tensor operator()(const Tensor& x) const {
    return call(x, [&](const Tensor& in) { return ops::tanh(ops::matmul(in, matrix_.value)); });
  }

 private:
  nn::Parameter& matrix_;
};

class Net final : public nn::Module {
 public:
  explicit Net(ExecutionContext& context) : Module(context), mixer_(context) {
    for (std::int64_t i = 0; i < kBlocks; ++i) {
      blocks_.push_back(std::make_unique<Block>(context));
      register_module(fmt::format("blocks.{}", i), *blocks_.back());
    }
    register_module("mixer", mixer_);
  }
  Mixer& mixer() { return mixer_; }
  Tensor operator()(Tensor x) const {
    for (const auto& block : blocks_) x = (*block)(x);
    return mixer_(x);
  }

 private:
  std::vector<std::unique_ptr<Block>> blocks_;
  Mixer mixer_;
};

/// Spreads the net over the mesh of the engine: by styles, and by placements where none fits.
void spread(Net& net, dtensor::DistributedEngine& engine) {
  const planner::StylePlan plan = {{"blocks.*.up", {{.kind = StyleKind::kColwise}}},
                                   {"blocks.*.down", {{.kind = StyleKind::kRowwise}}}};
  // All ranks have made the same values, so that none has to send them.
  parallel::parallelize_module(net, parallel::StyleMesh(engine), plan,
                               {.src_data_rank = std::nullopt});

  parallel::DistributeModuleOptions columns{.src_data_rank = std::nullopt};
  columns.partition = [](const std::string&, const Tensor&) {
    return planner::Placements{Placement::shard(1)};
  };
  columns.hook.before = [&engine](std::span<Tensor> in) {
    in[0] = dtensor::from_local(in[0], engine, {Placement::replicate()});
  };
  columns.hook.after = [](std::span<Tensor> out) { out[0] = dtensor::full_tensor(out[0]); };
  parallel::distribute_module(net.mixer(), engine, columns);
}

/// The groups of this rank on a mesh {fsdp, tp}. Gathers and sums need groups of their own.
struct Mesh {
  Mesh(comm::ProcessGroup& world, int tp)
      : whole(world, planner::MeshLayout({{"fsdp", world.size() / tp}, {"tp", tp}})),
        tensor(whole.sub_mesh({"tp"})),
        engine({*tensor, plans}),
        gather(world.split(whole.layout()->groups(0), "gathers")),
        reduce(world.split(whole.layout()->groups(0), "sums")),
        replicas(comm::make_single_process_group()) {}

  parallel::DataParallelGroups groups() {
    return {&whole.group(0), gather.get(), reduce.get(), replicas.get()};
  }

  dtensor::DeviceMesh whole;
  std::unique_ptr<dtensor::DeviceMesh> tensor;
  planner::PlanCache plans;
  dtensor::DistributedEngine engine;
  std::unique_ptr<comm::ProcessGroup> gather, reduce, replicas;
};

/// A net on a mesh. Fully sharded data parallelism knows nothing of layouts: it takes the local
/// tensors of parameters that have one.
class Training {
 public:
  Training(ExecutionContext& context, Mesh& mesh) : context_(context), mesh_(mesh), net_(context) {
    nn::initialize_parameters(net_, kSeed);
    spread(net_, mesh.engine);
    std::vector<parallel::DataParallelInput> inputs;
    for (const nn::NamedParameter& p : net_.named_parameters()) {
      Tensor& value = p.parameter->value;
      parallel::ShardCandidate candidate{p.name, value.shape(), {}};
      nn::Parameter* local = p.parameter;
      if (value.has_layout()) {
        const Placement& placement = value.layout()->spec->placement(0);
        if (placement.is_shard()) candidate.other_sharded = {placement.dim};
        locals_.push_back(std::make_unique<nn::Parameter>(
            nn::Parameter{value.layout()->local, p.parameter->init}));
        local = locals_.back().get();
      }
      inputs.push_back({candidate, local});
    }
    shard(inputs);
  }

  /// The loss of the whole batch before the step: the mean square of output - target. Each rank of
  /// fsdp has some of the rows.
  double step(const Tensor& x, const Tensor& target) {
    const planner::ShardRange rows =
        planner::shard_range(kRows, mesh_.gather->size(), mesh_.gather->rank());
    data_parallel_->begin_step();
    Tensor share = zeros(context_, {1}, DType::kFloat32);
    if (rows.size() == 0) {
      data_parallel_->take_part(true);
    } else {
      data_parallel_->begin_forward(true);
      const Tensor error = ops::sub(net_(ops::slice(x, 0, rows.begin, rows.end)),
                                    ops::slice(target, 0, rows.begin, rows.end));
      const Tensor loss = ops::mul(ops::sum(ops::mul(error, error)), 1.0 / (kRows * kWidth));
      data_parallel_->begin_backward(true);
      autograd::backward(loss);
      data_parallel_->end_backward();
      share = ops::reshape(loss.detach(), {1});
    }
    descend();
    return dtensor::all_reduce(share, *mesh_.gather).item();
  }

  /// Numbers of the model that this rank keeps between steps.
  std::int64_t kept() const {
    std::int64_t count = 0;
    for (const auto& p : data_parallel_->parameters()) count += p.parameter->value.numel();
    return count;
  }

 private:
  /// Gives every rank of fsdp its shards, whose values full sharding leaves to be filled in.
  void shard(const std::vector<parallel::DataParallelInput>& inputs) {
    std::vector<Tensor> values;
    for (const auto& input : inputs) {
      values.push_back(empty_like(input.parameter->value));
      copy_into(values.back(), input.parameter->value);
    }
    data_parallel_ = parallel::make_data_parallel(context_, mesh_.groups(), inputs,
                                                  parallel::FullyShardOptions{});
    for (std::size_t i = 0; i < inputs.size(); ++i) {
      const auto dim = data_parallel_->shard_dim(i);
      if (!dim) continue;
      const planner::ShardRange mine =
          planner::shard_range(values[i].size(*dim), mesh_.gather->size(), mesh_.gather->rank());
      copy_into(data_parallel_->parameters()[i].parameter->value.detach(),
                ops::slice(values[i], *dim, mine.begin, mine.end));
    }
  }

  /// Plain gradient descent, each rank on its shards.
  void descend() {
    const NoGradGuard no_grad(context_);
    for (const nn::NamedParameter& p : data_parallel_->parameters()) {
      const Tensor value = p.parameter->value.detach(), gradient = p.parameter->value.grad();
      copy_into(value, ops::sub(value, ops::mul(gradient, kRate)));
    }
  }

  ExecutionContext& context_;
  Mesh& mesh_;
  Net net_;
  std::vector<std::unique_ptr<nn::Parameter>> locals_;
  std::unique_ptr<parallel::DataParallel> data_parallel_;
};

struct Outcome {
  std::vector<double> losses;  ///< by step
  std::int64_t kept;           ///< numbers of the model on this rank
};

/// Some steps on a mesh whose dim tp has so many ranks.
Outcome train(comm::ProcessGroup& world, int tp) {
  ExecutionContext context;
  Mesh mesh(world, tp);
  const auto random = [&](const std::string& name) {
    const Tensor x = empty(context, {kRows, kWidth}, DType::kFloat32);
    nn::initialize_tensor(x, name, {nn::Init::Kind::kNormal, 1.0f}, kSeed);
    return x;
  };
  const Tensor x = random("x"), target = ops::tanh(random("target"));
  Training training(context, mesh);
  Outcome outcome{{}, training.kept()};
  for (int i = 0; i < kSteps; ++i) outcome.losses.push_back(training.step(x, target));
  return outcome;
}

void run(comm::RankRuntime& runtime, Report& report) {
  const auto world = runtime.make_world_group();
  const auto alone = comm::make_single_process_group();
  const Outcome wanted = train(*alone, 1);
  report.say("an own module on {} ranks, losses of one rank: {:.4f}", world->size(),
             fmt::join(wanted.losses, " "));
  report.check("the loss falls", wanted.losses.back() < 0.8 * wanted.losses.front());
  for (int tp = 1; tp <= world->size(); ++tp) {
    if (world->size() % tp != 0) continue;
    const Outcome seen = train(*world, tp);
    report.say("fsdp {} x tp {}: {} of {} numbers on rank 0", world->size() / tp, tp, seen.kept,
               wanted.kept);
    report.check("every rank keeps a part", world->size() == 1 || seen.kept < wanted.kept);
    report.check_near("the same losses", seen.losses, wanted.losses, 1e-5);
  }
}

}  // namespace
}  // namespace meshloom::examples

int main() { return meshloom::examples::run_ranks(meshloom::examples::run); }
