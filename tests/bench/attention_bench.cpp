// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

#include "kernels/cpu/cpu_backend.h"
#include "kernels/cpu/cpu_features.h"
#include "kernels/cpu/simd/targets.h"
#include "tests/bench/attention_plans.h"
#include "tests/bench/bench.h"
#include "tests/bench/context_attention.h"
#include "tests/bench/kernel_timing.h"
#include "tests/bench/probe.h"

namespace meshloom::bench {
namespace {

struct AttentionOptions {
  std::string dtype = "float32";
  int threads = 2;
  std::vector<std::int64_t> sequences{512, 2048, 8192};
  std::int64_t batch = 1, heads = 12, kv_heads = 0, dims = 64;
  bool full = false;
  double seconds = 0.5;
  bool json = false;
  int ranks = 0;
  std::string rotate = "pull";
  bool plans = false;
};

// Queries, keys and values as one projection leaves them: [B, S, (Hq + 2 Hkv) D].
struct Problem {
  Problem(const AttentionOptions& options, std::int64_t sequence, DType type)
      : heads(options.heads),
        kv_heads(options.kv_heads),
        b(options.batch),
        s(sequence),
        d(options.dims),
        dtype(type),
        row((heads + 2 * kv_heads) * d),
        qkv(dtype, b * s * row),
        grads(dtype, b * s * row),
        o(dtype, b * s * heads * d),
        grad_o(dtype, b * s * heads * d),
        lse(DType::kFloat32, b * heads * s),
        delta(DType::kFloat32, b * heads * s) {}

  TensorView part(Buffer& buffer, std::int64_t first, std::int64_t count) {
    return {buffer.at(first * d), dtype, {b, count, s, d}, {s * row, d, row, 1}, kCpuDevice};
  }
  TensorView output(Buffer& buffer) {
    return {buffer.at(0), dtype, {b, heads, s, d}, {s * heads * d, d, heads * d, 1}, kCpuDevice};
  }
  TensorView rows(Buffer& buffer) {
    return make_view(buffer.at(0), DType::kFloat32, {b, heads, s});
  }
  kernels::AttentionInputs inputs() {
    return {part(qkv, 0, heads), part(qkv, heads, kv_heads), part(qkv, heads + kv_heads, kv_heads)};
  }

  std::int64_t heads, kv_heads, b, s, d;
  DType dtype;
  std::int64_t row;
  Buffer qkv, grads, o, grad_o, lse, delta;
};

struct Times {
  double forward, backward;
};

Times run_problem(Problem& p, const AttentionOptions& options, KeptWorkspace& workspace) {
  const kernels::KernelContext context{{options.threads}, {}, &workspace};
  kernels::AttentionOptions attention_options;
  attention_options.is_causal = !options.full;
  Times times{};
  times.forward = best_seconds(
      [&] {
        kernels::cpu::cpu_backend().attention(context, {p.output(p.o), p.rows(p.lse), false},
                                              p.inputs(), attention_options);
      },
      options.seconds);
  const kernels::AttentionGrads grads{p.output(p.grad_o),
                                      p.rows(p.lse),
                                      p.rows(p.delta),
                                      p.part(p.grads, 0, p.heads),
                                      p.part(p.grads, p.heads, p.kv_heads),
                                      p.part(p.grads, p.heads + p.kv_heads, p.kv_heads),
                                      false,
                                      {},
                                      p.output(p.o)};
  times.backward = best_seconds(
      [&] {
        kernels::cpu::cpu_backend().attention_delta(context, p.rows(p.delta), p.output(p.grad_o),
                                                    p.output(p.o));
        kernels::cpu::cpu_backend().attention_backward(context, grads, p.inputs(),
                                                       attention_options);
      },
      options.seconds);
  return times;
}

// Rate of a product of matrices that fit the cache, as a yardstick of what libraries reach here and
// now.
double matmul_rate(const AttentionOptions& options, DType dtype, KeptWorkspace& workspace) {
  constexpr std::int64_t kSize = 1024;
  Buffer a(dtype, kSize * kSize), b(dtype, kSize * kSize), y(dtype, kSize * kSize);
  const auto view = [&](Buffer& buffer) { return make_view(buffer.at(0), dtype, {kSize, kSize}); };
  const double seconds = best_seconds(
      [&] {
        kernels::cpu::cpu_backend().matmul({{options.threads}, {}, &workspace}, view(y), view(a),
                                           view(b), {});
      },
      0.1);
  return 2.0 * static_cast<double>(kSize) * kSize * kSize / seconds;
}

void run_sequence(std::int64_t s, const AttentionOptions& options, DType dtype) {
  KeptWorkspace workspace;
  Problem problem(options, s, dtype);
  const double probe = fma_flops_per_second({options.threads}, 0.05);
  const double matmul = matmul_rate(options, dtype, workspace);
  const Times times = run_problem(problem, options, workspace);
  // Two products forward, five backward; a causal mask leaves half.
  const double product = 2.0 * static_cast<double>(options.batch * options.heads * options.dims) *
                         static_cast<double>(s) * static_cast<double>(s) *
                         (options.full ? 1.0 : 0.5);
  const double forward = 2.0 * product / times.forward;
  const double backward = 5.0 * product / times.backward;
  const double both = 7.0 * product / (times.forward + times.backward);
  if (options.json) {
    const nlohmann::json line = {{"bench", "attention"},
                                 {"seq", s},
                                 {"heads", options.heads},
                                 {"dims", options.dims},
                                 {"causal", !options.full},
                                 {"dtype", options.dtype},
                                 {"threads", options.threads},
                                 {"target", kernels::cpu::current_target()},
                                 {"forward_gflops", forward / 1e9},
                                 {"backward_gflops", backward / 1e9},
                                 {"gflops", both / 1e9},
                                 {"matmul_gflops", matmul / 1e9},
                                 {"probe_gflops", probe / 1e9},
                                 {"ratio_to_matmul", both / matmul},
                                 {"ratio_to_probe", both / probe}};
    fmt::print("{}\n", line.dump());
  } else {
    fmt::print(
        "S {:>6}: forward {:>9.3f} ms {:>6.1f}, backward {:>9.3f} ms {:>6.1f}, both {:>6.1f} "
        "GFLOP/s: {:.2f} of matmul {:.0f}, {:.2f} of probe {:.0f}\n",
        s, times.forward * 1e3, forward / 1e9, times.backward * 1e3, backward / 1e9, both / 1e9,
        both / matmul, matmul / 1e9, both / probe, probe / 1e9);
  }
  std::fflush(stdout);
}

}  // namespace

int run_attention_bench(int argc, char** argv) {
  AttentionOptions options;
  CLI::App app{"Flash attention against a probe and a matrix product of the same run", "attention"};
  app.add_option("--dtype", options.dtype, "float32 or bfloat16")->capture_default_str();
  app.add_option("--threads", options.threads, "Threads")->capture_default_str();
  app.add_option("--seq", options.sequences, "Sequence lengths")->capture_default_str();
  app.add_option("--batch", options.batch, "Batch size")->capture_default_str();
  app.add_option("--heads", options.heads, "Query heads")->capture_default_str();
  app.add_option("--kv-heads", options.kv_heads, "Key and value heads; 0: as many as query heads");
  app.add_option("--dims", options.dims, "Channels of a head")->capture_default_str();
  app.add_flag("--full", options.full, "No causal mask");
  app.add_option("--seconds", options.seconds, "Time per direction")->capture_default_str();
  app.add_flag("--json", options.json, "One JSON line per sequence length");
  app.add_option("--ranks", options.ranks,
                 "Context parallel on so many forked ranks of --threads each, beside their own "
                 "blocks on private copies and the whole on each")
      ->check(CLI::Range(1, 64));
  app.add_option("--rotate", options.rotate, "Of --ranks: how keys travel")
      ->check(CLI::IsMember({"allgather", "alltoall", "pull", "ulysses"}))
      ->capture_default_str();
  app.add_flag("--plans", options.plans,
               "Print which code computes which call on a GPU, and why cuDNN does not");
  CLI11_PARSE(app, argc, argv);
  if (options.plans) return print_attention_plans();
  const std::optional<DType> dtype = dtype_from_name(options.dtype);
  if (dtype != DType::kFloat32 && dtype != DType::kBFloat16)
    throw CLI::ValidationError("--dtype", "float32 or bfloat16");
  if (options.kv_heads == 0) options.kv_heads = options.heads;
  if (options.ranks > 0)
    return run_context_attention({.ranks = options.ranks,
                                  .threads = options.threads,
                                  .dtype = *dtype,
                                  .sequences = options.sequences,
                                  .batch = options.batch,
                                  .heads = options.heads,
                                  .kv_heads = options.kv_heads,
                                  .dims = options.dims,
                                  .is_causal = !options.full,
                                  .rotate = *planner::find_rotate(options.rotate),
                                  .seconds = options.seconds,
                                  .json = options.json});
  // Settled before targets are chosen.
  const char* cpu_class = kernels::cpu::cpu_class_name(kernels::cpu::cpu_class());
  if (!options.json)
    fmt::print("class {}, target {}, {} threads, {}\n", cpu_class, kernels::cpu::current_target(),
               options.threads, options.dtype);
  for (const std::int64_t s : options.sequences) run_sequence(s, options, *dtype);
  return 0;
}

}  // namespace meshloom::bench
