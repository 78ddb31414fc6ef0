// SPDX-License-Identifier: Apache-2.0
// Attention over a sequence that lies on all ranks: causal and with grouped heads, of a length that
// does not divide, forward and backward, against one rank that has the whole sequence.
#include "../report.h"
#include "daemon/dtensor/api/to_local.h"
#include "daemon/nn/module.h"
#include "daemon/parallel/context_parallel/context_scope.h"
#include "daemon/tensor/autograd/backward.h"
#include "daemon/tensor/ops/attention.h"
#include "daemon/tensor/ops/elementwise.h"
#include "daemon/tensor/ops/reduce.h"

namespace meshloom::examples {
namespace {

using parallel::ContextParallelScope;
using parallel::SequenceSharding;
using planner::LoadBalancer;
using planner::Rotate;

constexpr std::int64_t kRows = 2, kHeads = 6, kKeyHeads = 2, kLength = 101, kWidth = 16;

Tensor attend(const Tensor& q, const Tensor& k, const Tensor& v) {
  ops::SdpaOptions options;
  options.is_causal = true;
  options.enable_gqa = true;
  return ops::scaled_dot_product_attention(q, k, v, options).o;
}

/// The same on all ranks: leaves, and what attention makes of them on one rank.
struct Whole {
  Tensor q, k, v;
  std::vector<double> output;

  explicit Whole(ExecutionContext& context)
      : q(random(context, "q", kHeads)),
        k(random(context, "k", kKeyHeads)),
        v(random(context, "v", kKeyHeads)) {
    const NoGradGuard no_grad(context);
    output = attend(q, k, v).to_vector();
  }

  static Tensor random(ExecutionContext& context, const std::string& name, std::int64_t heads) {
    const Tensor x = empty(context, {kRows, heads, kLength, kWidth}, DType::kFloat32);
    nn::initialize_tensor(x, name, {.kind = nn::Init::Kind::kNormal, .std = 1.0f}, 7);
    return x;
  }
};

/// A program that knows nothing of ranks: within the scope the same call is context parallel.
void attend_in_scope(const SequenceSharding& sharding, const Whole& whole, Report& report) {
  Tensor q = whole.q, k = whole.k, v = whole.v;
  Tensor output;
  std::int64_t queries = 0;
  {
    const ContextParallelScope scope(sharding, {{&q, 2}, {&k, 2}, {&v, 2}});
    const Tensor part = attend(q, k, v);
    queries = dtensor::to_local(part).size(2);
    output = dtensor::to_local(parallel::unshard_sequence(part, 2));
  }
  report.check_near(fmt::format("keys by {}: {} of {} queries on rank 0",
                                to_string(sharding.plan.rotate), queries, kLength),
                    output.to_vector(), whole.output, 1e-5);
}

/// Gradients of the sum of squares of an attention's output by its inputs.
template <typename Attention>
std::vector<std::vector<double>> gradients(const Whole& whole, const Attention& attention) {
  std::vector<Tensor> leaves;
  for (const Tensor& x : {whole.q, whole.k, whole.v}) {
    leaves.push_back(empty_like(x));
    copy_into(leaves.back(), x);
    leaves.back().set_requires_grad(true);
  }
  const Tensor output = attention(leaves[0], leaves[1], leaves[2]);
  autograd::backward(ops::sum(ops::mul(output, output)));
  std::vector<std::vector<double>> values;
  for (const Tensor& leaf : leaves) values.push_back(leaf.grad().to_vector());
  return values;
}

/// Attention as a module of a model: hooks shard what goes in, and make whole what comes out.
class Attention final : public nn::Module {
 public:
  using nn::Module::Module;
  std::span<const std::string_view> input_names() const override {
    static constexpr std::string_view kNames[] = {"query", "key", "value"};
    return kNames;
  }
  Tensor operator()(const Tensor& q, const Tensor& k, const Tensor& v) const {
    return call(std::array{q, k, v}, [](std::array<Tensor, 3>& in) {
      return std::array{attend(in[0], in[1], in[2])};
    })[0];
  }
};

void differentiate(ExecutionContext& context, const SequenceSharding& sharding, const Whole& whole,
                   Report& report) {
  const auto wanted = gradients(whole, attend);
  Attention module(context);
  parallel::parallelize_attention(module, {.sharding = sharding, .gathers_output = true});
  const auto seen = gradients(whole, [&](const Tensor& q, const Tensor& k, const Tensor& v) {
    return dtensor::to_local(module(q, k, v));
  });
  const char* names[] = {"queries", "keys", "values"};
  for (std::size_t i = 0; i < wanted.size(); ++i)
    report.check_near(fmt::format("gradients of {}", names[i]), seen[i], wanted[i], 1e-4);
}

void run(comm::RankRuntime& runtime, Report& report) {
  const auto world = runtime.make_world_group();
  ExecutionContext context;
  dtensor::DeviceMesh mesh(*world, planner::MeshLayout({{"cp", world->size()}}));
  planner::PlanCache plans;
  dtensor::DistributedEngine engine({mesh, plans});
  report.say("attention of {} positions over {}", kLength, *mesh.layout());

  const Whole whole(context);
  SequenceSharding sharding{engine, "cp", {LoadBalancer::kHeadTail, Rotate::kPull, 0}};
  for (const Rotate rotate :
       {Rotate::kPull, Rotate::kAllGather, Rotate::kAllToAll, Rotate::kUlysses}) {
    sharding.plan.rotate = rotate;
    attend_in_scope(sharding, whole, report);
  }
  sharding.plan.rotate = Rotate::kPull;
  differentiate(context, sharding, whole, report);
}

}  // namespace
}  // namespace meshloom::examples

int main() { return meshloom::examples::run_ranks(meshloom::examples::run); }
