// SPDX-License-Identifier: Apache-2.0
// Copies, products and attention on a device, at the shapes of training steps, each over what the
// device can do in the same run.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <numeric>
#include <string>
#include <vector>

#include "tests/bench/bench.h"
#include "tests/bench/bench_device.h"
#include "tests/bench/device_timing.h"

namespace meshloom::bench {
namespace {

struct DeviceBenchOptions {
  std::string device = "cpu";
  std::string only;
  bool tiny = false;
  double seconds = 0.1;
};

struct DeviceAttention {
  std::string name;
  std::int64_t batch, heads, kv_heads, sequence, dims;
  /// Positions are given, as they are counted anyway: on a GPU the own kernels compute it.
  bool with_positions = false;
};

struct AttentionRates {
  double forward, backward;  ///< operations a second, of the causal half
};

AttentionRates attention_rates(DeviceTiming& bench, const DeviceAttention& p) {
  DeviceTensors blocks(bench);
  const DType dtype = DType::kBFloat16;
  const Shape queries{p.batch, p.heads, p.sequence, p.dims};
  const Shape keys{p.batch, p.kv_heads, p.sequence, p.dims};
  const Shape rows{p.batch, p.heads, p.sequence};
  const kernels::AttentionInputs inputs{blocks.tensor(dtype, queries), blocks.tensor(dtype, keys),
                                        blocks.tensor(dtype, keys)};
  const TensorView o = blocks.tensor(dtype, queries);
  kernels::AttentionGrads grads;
  grads.o = o;
  grads.grad_o = blocks.tensor(dtype, queries);
  grads.lse = blocks.tensor(DType::kFloat32, rows);
  grads.delta = blocks.tensor(DType::kFloat32, rows);
  grads.dq = blocks.tensor(dtype, queries);
  grads.dk = blocks.tensor(dtype, keys);
  grads.dv = blocks.tensor(dtype, keys);
  kernels::AttentionOptions options;
  options.is_causal = true;
  kernels::Backend& backend = bench.backend();
  if (p.with_positions) {
    std::vector<std::int64_t> counted(static_cast<std::size_t>(p.sequence));
    std::iota(counted.begin(), counted.end(), 0);
    options.query_positions = options.key_positions = blocks.tensor(DType::kInt64, {p.sequence});
    backend.copy_from_host(bench.context(), options.query_positions,
                           make_view(counted.data(), DType::kInt64, {p.sequence}));
  }
  const double forward = bench.seconds_of([&] {
    backend.attention(bench.context(), {o, grads.lse}, inputs, options);
  });
  const double backward = bench.seconds_of([&] {
    backend.attention_delta(bench.context(), grads.delta, grads.grad_o, o);
    backend.attention_backward(bench.context(), grads, inputs, options);
  });
  const double product = static_cast<double>(p.batch * p.heads * p.dims) *
                         static_cast<double>(p.sequence) * static_cast<double>(p.sequence);
  return {2.0 * product / forward, 5.0 * product / backward};
}

/// Heads of 64 and 128 at three lengths, 32K tokens of 16 heads each, by cuDNN and by the own
/// kernels.
std::vector<DeviceAttention> long_attentions(bool tiny) {
  std::vector<DeviceAttention> all;
  const std::vector<std::int64_t> lengths =
      tiny ? std::vector<std::int64_t>{32} : std::vector<std::int64_t>{1024, 8192, 32768};
  for (const std::int64_t dims :
       tiny ? std::vector<std::int64_t>{16} : std::vector<std::int64_t>{64, 128})
    for (const std::int64_t length : lengths)
      for (const bool own : {false, true})
        all.push_back({fmt::format("T {} D {} {}", length, dims, own ? "own" : "cuDNN"),
                       tiny ? 1 : 32768 / length, tiny ? 2 : 16, tiny ? 1 : 16, length, dims, own});
  return all;
}

void print_rate(const char* kind, const std::string& name, double rate, double ceiling) {
  const nlohmann::json line = {{"bench", "device"},
                               {"kind", kind},
                               {"name", name},
                               {"tflops", rate / 1e12},
                               {"ratio", rate / ceiling}};
  fmt::print("{}\n", line.dump());
  std::fflush(stdout);
}

}  // namespace

int run_device_bench(int argc, char** argv) {
  DeviceBenchOptions options;
  CLI::App app{"Copies, products and attention in bfloat16 on a device, over its ceilings",
               "device"};
  add_device_option(app, options.device);
  app.add_option("--only", options.only,
                 "ceilings: no shapes of models; attention: cuDNN and the own kernels, by length")
      ->check(CLI::IsMember({"ceilings", "attention"}));
  app.add_flag("--tiny", options.tiny, "Shapes that an emulated device can do");
  app.add_option("--seconds", options.seconds, "Time per shape")->capture_default_str();
  CLI11_PARSE(app, argc, argv);

  DeviceTiming bench(open_bench_device(options.device), options.tiny ? 0.0 : options.seconds);
  const auto [ceiling, copy] = measure_ceilings(bench, options.tiny);
  double worst_product = 1e30, worst_attention = 1e30;
  if (options.only != "ceilings") {
    std::vector<DeviceProduct> products = step_products(options.tiny);
    std::vector<DeviceAttention> attentions = {{"gpt2", 16, 12, 12, 1024, 64},
                                               {"llama", 4, 32, 8, 2048, 64}};
    if (options.tiny) attentions = {{"tiny", 1, 4, 2, 32, 16}};
    if (options.only == "attention") {
      products.clear();
      attentions = long_attentions(options.tiny);
    }
    for (const DeviceProduct& p : products) {
      const double rate = product_rate(bench, p);
      print_rate("matmul", p.name, rate, ceiling);
      worst_product = std::min(worst_product, rate / ceiling);
    }
    for (const DeviceAttention& p : attentions) {
      const AttentionRates rates = attention_rates(bench, p);
      print_rate("attention", fmt::format("{} forward", p.name), rates.forward, ceiling);
      print_rate("attention", fmt::format("{} backward", p.name), rates.backward, ceiling);
      worst_attention =
          std::min({worst_attention, rates.forward / ceiling, rates.backward / ceiling});
    }
  }
  fmt::print("copy {:.1f} GB/s, matmul {:.3f} TFLOP/s", copy / 1e9, ceiling / 1e12);
  if (options.only.empty())
    fmt::print("; over it at least: products {:.2f}, attention {:.2f}", worst_product,
               worst_attention);
  if (options.only == "attention")
    fmt::print("; attention over it at least {:.2f}", worst_attention);
  fmt::print("\n");
  return 0;
}

}  // namespace meshloom::bench
