// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

#include "kernels/cpu/cpu_backend.h"
#include "kernels/cpu/cpu_features.h"
#include "kernels/cpu/matmul/matmul.h"
#include "kernels/cpu/matmul/matmul_table.h"
#include "tests/bench/bench.h"
#include "tests/bench/kernel_timing.h"
#include "tests/bench/probe.h"

namespace meshloom::bench {
namespace {

struct MatmulOptions {
  std::string dtype = "float32";
  int threads = 2;
  std::vector<std::int64_t> shape;
  std::string layout = "NN";
  bool accumulate = false;
  bool cold = false;
  double seconds = 0.3;
  bool json = false;
};

struct Product {
  std::string name;
  std::int64_t m, n, k;
  bool a_transposed, b_transposed;
  bool accumulate;  ///< into float32, as weight gradients
};

// T = 1024 tokens of GPT-2 124M (weights [in, out]) and 12 x 256 of the quickstart model ([out,
// in]).
std::vector<Product> model_products() {
  return {{"gpt2 qkv", 1024, 2304, 768, false, false, false},
          {"gpt2 proj", 1024, 768, 768, false, false, false},
          {"gpt2 fc", 1024, 3072, 768, false, false, false},
          {"gpt2 fc out", 1024, 768, 3072, false, false, false},
          {"gpt2 dgrad qkv", 1024, 768, 2304, false, true, false},
          {"gpt2 dgrad fc", 1024, 768, 3072, false, true, false},
          {"gpt2 dgrad fc out", 1024, 3072, 768, false, true, false},
          {"gpt2 wgrad qkv", 768, 2304, 1024, true, false, true},
          {"gpt2 wgrad fc", 768, 3072, 1024, true, false, true},
          {"gpt2 wgrad fc out", 3072, 768, 1024, true, false, true},
          {"gpt2 logits chunk", 256, 50257, 768, false, true, false},
          {"gpt2 dhidden chunk", 256, 768, 50257, false, false, false},
          {"gpt2 dvocab chunk", 50257, 768, 256, true, false, true},
          {"quick fc", 3072, 1536, 384, false, true, false},
          {"quick dgrad fc", 3072, 384, 1536, false, false, false},
          {"quick wgrad fc", 1536, 384, 3072, true, false, true},
          {"quick wgrad proj", 384, 384, 3072, true, false, true}};
}

TensorView matrix(Buffer& buffer, DType dtype, std::int64_t rows, std::int64_t columns,
                  bool is_transposed) {
  return {buffer.at(0),
          dtype,
          {rows, columns},
          is_transposed ? Strides{1, rows} : Strides{columns, 1},
          kCpuDevice};
}

// One product's matrices.
struct Operands {
  Operands(const Product& p, DType dtype)
      : a(dtype, p.m * p.k),
        b(dtype, p.k * p.n),
        y(p.accumulate ? DType::kFloat32 : dtype, p.m * p.n),
        y_view(matrix(y, p.accumulate ? DType::kFloat32 : dtype, p.m, p.n, false)),
        a_view(matrix(a, dtype, p.m, p.k, p.a_transposed)),
        b_view(matrix(b, dtype, p.k, p.n, p.b_transposed)) {}

  Buffer a, b, y;
  TensorView y_view, a_view, b_view;
};

// One set of matrices, or so many that those of a call have left the caches before it.
std::vector<Operands> operands_of(const Product& p, DType dtype, bool cold) {
  constexpr std::int64_t kBeyondCaches = 512 << 20;
  const std::int64_t bytes = (p.m * p.k + p.k * p.n + p.m * p.n) * 4;
  std::vector<Operands> sets;
  const std::int64_t count = cold ? kBeyondCaches / bytes + 2 : 1;
  for (std::int64_t i = 0; i < count; ++i) sets.emplace_back(p, dtype);
  return sets;
}

void run_product(const Product& p, const MatmulOptions& options, DType dtype) {
  const Threads threads{options.threads};
  const double probe =
      dtype == DType::kBFloat16
          ? std::max(bfloat16_flops_per_second(threads, 0.05), fma_flops_per_second(threads, 0.05))
          : fma_flops_per_second(threads, 0.05);
  kernels::MatmulOptions matmul_options;
  matmul_options.beta = p.accumulate ? 1.0f : 0.0f;
  const std::vector<Operands> sets = operands_of(p, dtype, options.cold);
  const TensorView &y_view = sets[0].y_view, &a_view = sets[0].a_view, &b_view = sets[0].b_view;
  KeptWorkspace workspace;
  std::size_t next = 0;
  const double seconds = best_seconds(
      [&] {
        const Operands& set = sets[next++ % sets.size()];
        kernels::cpu::cpu_backend().matmul({threads, {}, &workspace}, set.y_view, set.a_view,
                                           set.b_view, matmul_options);
      },
      options.seconds);
  const double rate = 2.0 * static_cast<double>(p.m * p.n) * static_cast<double>(p.k) / seconds;
  const char* route = kernels::cpu::matmul_route(threads, y_view, a_view, b_view, matmul_options);
  const std::string layout = fmt::format("{}{}{}", p.a_transposed ? 'T' : 'N',
                                         p.b_transposed ? 'T' : 'N', p.accumulate ? '+' : ' ');
  if (options.json) {
    const nlohmann::json line = {{"bench", "matmul"},
                                 {"name", p.name},
                                 {"m", p.m},
                                 {"n", p.n},
                                 {"k", p.k},
                                 {"layout", layout},
                                 {"route", route},
                                 {"dtype", options.dtype},
                                 {"threads", options.threads},
                                 {"gflops", rate / 1e9},
                                 {"probe_gflops", probe / 1e9},
                                 {"ratio", rate / probe},
                                 {"milliseconds", seconds * 1e3}};
    fmt::print("{}\n", line.dump());
  } else {
    fmt::print(
        "{:<20} {} {:>6} x {:>6} x {:>6} {:>9.3f} ms {:>8.1f} GFLOP/s  {:.2f} of {:.0f}  {}\n",
        p.name, layout, p.m, p.n, p.k, seconds * 1e3, rate / 1e9, rate / probe, probe / 1e9, route);
  }
  std::fflush(stdout);
}

}  // namespace

int run_matmul_bench(int argc, char** argv) {
  MatmulOptions options;
  CLI::App app{"Matrix products against a register-only probe of the same run", "matmul"};
  app.add_option("--dtype", options.dtype, "float32 or bfloat16")->capture_default_str();
  app.add_option("--threads", options.threads, "Threads")->capture_default_str();
  app.add_option("--shape", options.shape, "M N K of one product instead of the models'")
      ->expected(3);
  app.add_option("--layout", options.layout, "NN, NT, TN or TT: whether a and b are transposed")
      ->capture_default_str();
  app.add_flag("--accumulate", options.accumulate, "Add to a float32 result");
  app.add_flag("--cold", options.cold, "Operands that no cache holds, as in a training step");
  app.add_option("--seconds", options.seconds, "Time per product")->capture_default_str();
  app.add_flag("--json", options.json, "One JSON line per product");
  CLI11_PARSE(app, argc, argv);
  const std::optional<DType> dtype = dtype_from_name(options.dtype);
  if (dtype != DType::kFloat32 && dtype != DType::kBFloat16)
    throw CLI::ValidationError("--dtype", "float32 or bfloat16");
  if (!options.json)
    fmt::print("class {}, {} threads, {}, table version {}\n",
               kernels::cpu::cpu_class_name(kernels::cpu::cpu_class()), options.threads,
               options.dtype, kernels::cpu::kMatmulTableVersion);
  std::vector<Product> products = model_products();
  if (!options.shape.empty())
    products = {{"given", options.shape[0], options.shape[1], options.shape[2],
                 options.layout.starts_with("T"), options.layout.ends_with("T"),
                 options.accumulate}};
  for (const Product& product : products) run_product(product, options, *dtype);
  return 0;
}

}  // namespace meshloom::bench
