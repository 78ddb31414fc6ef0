// SPDX-License-Identifier: Apache-2.0
// Fused products of tensor-parallel layers beside the local product of the same operations.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <array>
#include <functional>
#include <nlohmann/json.hpp>

#include "daemon/comm/mesh/local_bootstrap.h"
#include "daemon/comm/symm_mem/fused/fused_matmul.h"
#include "daemon/comm/symm_mem/host_symmetric_memory.h"
#include "daemon/tensor/ops/matmul.h"
#include "daemon/tensor/ops/shape.h"
#include "kernels/base/error.h"
#include "planner/plan/fusion.h"
#include "planner/shard.h"
#include "tests/bench/bench.h"
#include "tests/bench/rank_turns.h"

namespace meshloom::bench {
namespace {

struct FusedOptions {
  std::string dtype = "float32";
  std::int64_t tokens = 1024;
  int ranks = 2;
  int threads = 1;  ///< of each rank
  int splits = 4;
  double seconds = 2.0;
};

/// A layer of a model: [tokens, in] times matrices of so many columns, all of them cut over the
/// ranks: by columns where it gathers, by rows where it scatters.
struct Layer {
  const char* name;
  bool gathers;
  std::int64_t in;
  std::vector<std::int64_t> columns;
};

std::vector<Layer> layers() {
  return {{"gpt2_124m qkv", true, 768, {2304}},
          {"gpt2_124m attention out", false, 768, {768}},
          {"gpt2_124m fc", true, 768, {3072}},
          {"gpt2_124m fc out", false, 3072, {768}},
          {"llama_1b qkv", true, 2048, {2048, 512, 512}},
          {"llama_1b attention out", false, 2048, {2048}},
          {"llama_1b gate up", true, 2048, {8192, 8192}},
          {"llama_1b down", false, 8192, {2048}}};
}

/// One layer on one rank.
class Measurement {
 public:
  Measurement(const Layer& layer, const FusedOptions& options, DType dtype,
              comm::ProcessGroup& world, comm::SymmetricGroup& group, ExecutionContext& context)
      : layer_(layer), options_(options), world_(world), group_(group), context_(context) {
    const std::int64_t tokens = options.tokens;
    const std::int64_t own_in = share(layer.in);
    whole_ = bench_values(context, {tokens, layer.gathers ? layer.in : own_in}, dtype);
    shard_ = bench_values(context, {share(tokens), layer.in}, dtype);
    for (const std::int64_t columns : layer.columns)
      bs_.push_back(bench_values(
          context, {layer.gathers ? layer.in : own_in, layer.gathers ? share(columns) : columns},
          dtype));
  }

  nlohmann::json run() {
    std::array ways{Way{"local", [&] { local(); }}, Way{"fused", [&] { fused(0); }},
                    Way{"pieces", [&] { fused(options_.splits); }},
                    Way{"unfused", [&] { unfused(); }}};
    run_in_turns(world_, ways, options_.seconds);
    const double local = percentile(ways[0].seconds, 0.5);
    nlohmann::json line{{"bench", "fused"},
                        {"table", planner::kFusionTableVersion},
                        {"layer", layer_.name},
                        {"op", layer_.gathers ? "all_gather_matmul" : "matmul_reduce_scatter"},
                        {"dtype", options_.dtype},
                        {"tokens", options_.tokens},
                        {"ranks", world_.size()},
                        {"threads", options_.threads},
                        {"splits", options_.splits},
                        {"runs", ways[0].seconds.size()}};
    for (const Way& way : ways) {
      const std::string name = way.name;
      line[name + "_ms"] = percentile(way.seconds, 0.5) * 1e3;
      line[name + "_best_ms"] = *std::min_element(way.seconds.begin(), way.seconds.end()) * 1e3;
      if (name != "local") line["local_to_" + name] = local / percentile(way.seconds, 0.5);
    }
    return line;
  }

 private:
  std::int64_t share(std::int64_t size) const {
    return planner::shard_range(size, world_.size(), world_.rank()).size();
  }

  void local() {
    for (const Tensor& b : bs_) ops::matmul(whole_, b);
  }

  void fused(int splits) {
    if (layer_.gathers)
      comm::fused_all_gather_matmul(group_, shard_, bs_, 0, {splits});
    else
      comm::fused_matmul_reduce_scatter(group_, whole_, bs_[0], comm::ReduceOp::kSum, 0, {splits});
  }

  /// The rows of a rank of a tensor of all tokens.
  std::vector<TensorView> parts(const Tensor& x) const {
    std::vector<TensorView> views;
    for (int r = 0; r < world_.size(); ++r) {
      const planner::ShardRange range = planner::shard_range(x.size(0), world_.size(), r);
      views.push_back(rows_of(x.view(), range.begin, range.size()));
    }
    return views;
  }

  void unfused() {
    if (layer_.gathers) {
      const Tensor whole = empty(context_, whole_.shape(), whole_.dtype());
      world_.all_gather(parts(whole), shard_.view())->wait_host();
      for (const Tensor& b : bs_) ops::matmul(whole, b);
      return;
    }
    const Tensor product = ops::matmul(whole_, bs_[0]);
    const Tensor sum = empty(context_, {share(options_.tokens), product.size(1)}, product.dtype());
    world_.reduce_scatter(sum.view(), parts(product), comm::ReduceOp::kSum)->wait_host();
  }

  const Layer& layer_;
  const FusedOptions& options_;
  comm::ProcessGroup& world_;
  comm::SymmetricGroup& group_;
  ExecutionContext& context_;
  Tensor whole_, shard_;  ///< of A: what the local product takes, and what is gathered
  std::vector<Tensor> bs_;
};

int run_rank(const FusedOptions& options, DType dtype, comm::RankRuntime& runtime) {
  const auto world = runtime.make_world_group();
  comm::HostSymmetricMemory memory;
  comm::SymmetricGroup& group = memory.enable(*world);
  if (!group.enabled()) throw FailedPrecondition("no symmetric memory: " + group.why_not());
  ExecutionContext context({kCpuDevice, {options.threads}, 0, nullptr});
  const NoGradGuard no_grad(context);
  for (const Layer& layer : layers()) {
    const nlohmann::json line = Measurement(layer, options, dtype, *world, group, context).run();
    if (world->rank() == 0) fmt::print("{}\n", line.dump());
    std::fflush(stdout);
  }
  world->barrier()->wait_host();
  return 0;
}

}  // namespace

int run_fused_bench(int argc, char** argv) {
  FusedOptions options;
  CLI::App app{"Fused products of tensor-parallel layers against the local product", "fused"};
  app.add_option("--dtype", options.dtype, "float32, bfloat16 or float16")->capture_default_str();
  app.add_option("--tokens", options.tokens, "Rows of A")->capture_default_str();
  app.add_option("--ranks", options.ranks, "Forked ranks")->check(CLI::Range(1, 64));
  app.add_option("--threads", options.threads, "Threads of each rank")->capture_default_str();
  app.add_option("--splits", options.splits, "Pieces of the variant by pieces")
      ->check(CLI::Range(1, 16));
  app.add_option("--seconds", options.seconds, "Time per layer")->capture_default_str();
  CLI11_PARSE(app, argc, argv);
  const std::optional<DType> dtype = dtype_from_name(options.dtype);
  if (dtype != DType::kFloat32 && dtype != DType::kBFloat16 && dtype != DType::kFloat16)
    throw CLI::ValidationError("--dtype", "float32, bfloat16 or float16");
  return comm::run_local_ranks(options.ranks, [&](comm::RankRuntime& runtime) {
    return run_rank(options, *dtype, runtime);
  });
}

}  // namespace meshloom::bench
