// SPDX-License-Identifier: Apache-2.0
#include "tests/bench/context_attention.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <functional>
#include <nlohmann/json.hpp>
#include <numeric>

#include "daemon/comm/mesh/local_bootstrap.h"
#include "daemon/comm/symm_mem/tensors/symmetric_source.h"
#include "daemon/dtensor/api/from_local.h"
#include "daemon/parallel/context_parallel/context_attention.h"
#include "daemon/tensor/autograd/backward.h"
#include "daemon/tensor/ops/attention.h"
#include "planner/attention/balance.h"
#include "tests/bench/bench.h"
#include "tests/bench/rank_turns.h"

namespace meshloom::bench {
namespace {

using planner::IndexRanges;
using Options = ContextAttentionOptions;

Tensor positions_of(ExecutionContext& context, const IndexRanges& ranges) {
  const std::vector<std::int64_t> all = parallel::elements(ranges);
  return from_values(context, {static_cast<std::int64_t>(all.size())},
                     std::span<const std::int64_t>(all));
}

/// Forward and backward over some blocks of keys that this rank has for itself.
class PrivateBlocks {
 public:
  PrivateBlocks(ExecutionContext& context, const Options& options, const IndexRanges& queries,
                const std::vector<planner::AttentionStep>& steps)
      : context_(context), positions_(positions_of(context, queries)) {
    const auto tensor = [&](std::int64_t heads, std::int64_t count, DType dtype) {
      return bench_values(context, {options.batch, heads, count, options.dims}, dtype);
    };
    const std::int64_t count = total_size(queries);
    q_ = tensor(options.heads, count, options.dtype);
    grad_o_ = tensor(options.heads, count, options.dtype);
    result_ = tensor(options.heads, count, options.dtype);
    o_ = tensor(options.heads, count, DType::kFloat32);
    dq_ = tensor(options.heads, count, DType::kFloat32);
    lse_ = empty(context, {options.batch, options.heads, count}, DType::kFloat32);
    delta_ = empty(context, lse_.shape(), DType::kFloat32);
    for (const planner::AttentionStep& step : steps) {
      const std::int64_t keys = total_size(step.keys);
      if (keys == 0) continue;
      blocks_.push_back({positions_of(context, step.keys),
                         tensor(options.kv_heads, keys, options.dtype),
                         tensor(options.kv_heads, keys, options.dtype),
                         tensor(options.kv_heads, keys, DType::kFloat32),
                         tensor(options.kv_heads, keys, DType::kFloat32)});
    }
    options_.is_causal = options.is_causal;
    options_.query_positions = positions_.view();
  }

  void run() {
    auto& backend = context_.backend();
    const auto& kernel_context = context_.kernel_context();
    bool carry = false;
    for (const Block& block : blocks_) {
      options_.key_positions = block.positions.view();
      backend.attention(kernel_context, {o_.view(), lse_.view(), carry}, inputs(block), options_);
      carry = true;
    }
    backend.copy(kernel_context, result_.view(), o_.view());
    backend.attention_delta(kernel_context, delta_.view(), grad_o_.view(), result_.view());
    backend.fill(kernel_context, dq_.view(), 0.0);
    for (const Block& block : blocks_) {
      options_.key_positions = block.positions.view();
      backend.fill(kernel_context, block.dk.view(), 0.0);
      backend.fill(kernel_context, block.dv.view(), 0.0);
      backend.attention_backward(kernel_context,
                                 {grad_o_.view(),
                                  lse_.view(),
                                  delta_.view(),
                                  dq_.view(),
                                  block.dk.view(),
                                  block.dv.view(),
                                  true,
                                  {}},
                                 inputs(block), options_);
    }
  }

 private:
  struct Block {
    Tensor positions, k, v, dk, dv;
  };
  kernels::AttentionInputs inputs(const Block& block) const {
    return {q_.view(), block.k.view(), block.v.view()};
  }

  ExecutionContext& context_;
  Tensor positions_, q_, grad_o_, result_, o_, dq_, lse_, delta_;
  std::vector<Block> blocks_;
  kernels::AttentionOptions options_;
};

/// Forward and backward of an op on leaves with these values.
class AttentionOp {
 public:
  AttentionOp(ExecutionContext& context, const Options& options, std::int64_t length,
              std::function<Tensor(const Tensor&, bool)> place)
      : place_(std::move(place)) {
    const auto tensor = [&](std::int64_t heads) {
      return bench_values(context, {options.batch, heads, length, options.dims}, options.dtype);
    };
    q_ = tensor(options.heads);
    grad_o_ = tensor(options.heads);
    // As models make them.
    const OutputMemory memory(context, MemoryKind::kSymmetric);
    k_ = tensor(options.kv_heads);
    v_ = tensor(options.kv_heads);
    options_.is_causal = options.is_causal;
    options_.enable_gqa = true;
  }

  void run() const {
    const auto leaf = [](const Tensor& x) { return x.detach().set_requires_grad(true); };
    const Tensor q = leaf(q_), k = leaf(k_), v = leaf(v_);
    const ops::SdpaResult result = ops::scaled_dot_product_attention(
        place_(q, true), place_(k, false), place_(v, false), options_);
    const Tensor outputs[] = {local_of(result.o)}, grads[] = {grad_o_};
    autograd::backward(outputs, grads);
  }

 private:
  std::function<Tensor(const Tensor&, bool)> place_;
  Tensor q_, k_, v_, grad_o_;
  ops::SdpaOptions options_;
};

/// One length on one rank.
class Measurement {
 public:
  Measurement(const Options& options, std::int64_t length, comm::ProcessGroup& world,
              ExecutionContext& context, dtensor::DistributedEngine& engine)
      : options_(options), length_(length), world_(world) {
    const planner::RowMask row{{.is_causal = options.is_causal}, nullptr};
    const auto held =
        planner::balanced_parts(planner::LoadBalancer::kHeadTail, length, options.ranks, row);
    std::vector<planner::SequencePart> parts;
    for (const IndexRanges& part : held) parts.push_back({part, part});
    balance_ = planner::balance_of(held, row);
    const auto& own = held[static_cast<std::size_t>(world.rank())];
    blocks_ = std::make_unique<PrivateBlocks>(
        context, options, own, planner::attention_schedule(world.rank(), parts, row));
    const auto order =
        planner::balanced_order(planner::LoadBalancer::kHeadTail, length, options.ranks, 0, {row});
    const auto spec = [&](std::int64_t heads) {
      return engine.intern(std::make_shared<const planner::DTensorSpec>(
          engine.context().mesh.layout(), planner::Placements{planner::Placement::shard(2)},
          Shape{options.batch, heads, length, options.dims}, planner::ShardOrder{},
          std::vector{order}));
    };
    shared_ = std::make_unique<AttentionOp>(
        context, options, total_size(own),
        [&engine, queries = spec(options.heads), keys = spec(options.kv_heads)](const Tensor& x,
                                                                                bool is_query) {
          return dtensor::from_local(x, engine, is_query ? queries : keys);
        });
    whole_ = std::make_unique<AttentionOp>(context, options, length,
                                           [](const Tensor& x, bool) { return x; });
  }

  nlohmann::ordered_json run() {
    std::array ways{Way{"context_parallel", [&] { shared_->run(); }},
                    Way{"own_blocks", [&] { blocks_->run(); }},
                    Way{"whole_on_one_rank", [&] { whole_->run(); }}};
    run_in_turns(world_, ways, options_.seconds);
    const auto median = [](const Way& way) { return percentile(way.seconds, 0.5); };
    // The least of many runs is what a machine with other programs disturbs least.
    const auto least = [](const std::vector<double>& all) {
      return *std::min_element(all.begin(), all.end());
    };
    const double ranks = world_.size();
    const double shared = median(ways[0]), own = median(ways[1]), whole = median(ways[2]);
    return {{"bench", "context_attention"},
            {"seq", length_},
            {"ranks", world_.size()},
            {"threads", options_.threads},
            {"dtype", dtype_name(options_.dtype)},
            {"rotate", planner::to_string(options_.rotate)},
            {"runs", ways[0].seconds.size()},
            {"context_parallel_ms", shared * 1e3},
            {"own_blocks_ms", own * 1e3},
            {"whole_on_one_rank_ms", whole * 1e3},
            {"efficiency", own / shared},
            {"best_efficiency", least(ways[1].seconds) / least(ways[0].seconds)},
            {"best_cpu_efficiency", least(ways[1].cpu_seconds) / least(ways[0].cpu_seconds)},
            {"balance", balance_},
            {"kernel", whole / (ranks * balance_ * own)},
            {"overlap", own / shared},
            {"speedup_per_rank", whole / (ranks * shared)}};
  }

 private:
  const Options& options_;
  std::int64_t length_;
  comm::ProcessGroup& world_;
  double balance_ = 1.0;
  std::unique_ptr<PrivateBlocks> blocks_;
  std::unique_ptr<AttentionOp> shared_, whole_;
};

void print(const nlohmann::ordered_json& line, bool json) {
  if (json) {
    fmt::print("{}\n", line.dump());
  } else {
    const auto number = [&](const char* name) { return line[name].get<double>(); };
    fmt::print(
        "S {:>6}, {} ranks: context parallel {:>9.3f} ms, own blocks {:>9.3f} ms, whole on one "
        "{:>9.3f} ms: efficiency {:.3f} (of the best runs {:.3f}, of their CPU time {:.3f}); "
        "balance "
        "{:.4f} x kernel {:.3f} x overlap {:.3f} = {:.3f}\n",
        line["seq"].get<std::int64_t>(), line["ranks"].get<int>(), number("context_parallel_ms"),
        number("own_blocks_ms"), number("whole_on_one_rank_ms"), number("efficiency"),
        number("best_efficiency"), number("best_cpu_efficiency"), number("balance"),
        number("kernel"), number("overlap"), number("speedup_per_rank"));
  }
  std::fflush(stdout);
}

int run_rank(const Options& options, comm::RankRuntime& runtime) {
  const auto world = runtime.make_world_group({.threads = Threads{options.threads}});
  ExecutionContext::Options context_options;
  context_options.threads = Threads{options.threads};
  context_options.symmetric_allocator = comm::make_symmetric_allocator(*world);
  ExecutionContext context(context_options);
  dtensor::DeviceMesh mesh(*world, planner::MeshLayout({{"cp", options.ranks}}));
  planner::PlanCache plans;
  dtensor::DistributedEngine engine({mesh, plans});
  parallel::enable_context_parallel(engine, {planner::LoadBalancer::kHeadTail, options.rotate, 0});
  for (const std::int64_t length : options.sequences) {
    const auto line = Measurement(options, length, *world, context, engine).run();
    if (world->rank() == 0) print(line, options.json);
  }
  world->barrier()->wait_host();
  return 0;
}

}  // namespace

int run_context_attention(const ContextAttentionOptions& options) {
  return comm::run_local_ranks(
      options.ranks, [&](comm::RankRuntime& runtime) { return run_rank(options, runtime); });
}

}  // namespace meshloom::bench
