// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <cstdio>
#include <cstring>
#include <functional>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "kernels/backend_table.h"
#include "kernels/base/error.h"
#include "kernels/cpu/simd/targets.h"
#include "tests/bench/bench.h"
#include "tests/bench/kernel_timing.h"
#include "tests/bench/probe.h"

namespace meshloom::bench {
namespace {

using kernels::Backend;
using kernels::BinaryOp;
using kernels::KernelContext;
using kernels::ReduceOp;
using kernels::UnaryOp;

struct KernelsOptions {
  int threads = 2;
  int repetitions = 7;
  std::string dtype = "float32";
  std::string target;
  std::string filter;
  std::int64_t adam_elements = 32 << 20;
  bool json = false;
};

// One kernel with its tensors. `bytes` is what it must read and write at least.
struct Case {
  std::string name;
  double bytes;
  std::function<void()> run;
};

class Bench {
 public:
  explicit Bench(const KernelsOptions& options)
      : options_(options),
        source_(kProbeBytes),
        destination_(kProbeBytes),
        backend_(kernels::backend_for(kCpuDevice)) {
    context_.threads = {options.threads};
    context_.workspace = &scratch_;
    const auto dtype = dtype_from_name(options.dtype);
    check(dtype.has_value(), "--dtype {}: not a dtype", options.dtype);
    dtype_ = *dtype;
  }

  // A tensor of random values in [low, high).
  TensorView tensor(const Shape& shape, DType dtype, float low = -2.0f, float high = 2.0f) {
    const std::size_t bytes = static_cast<std::size_t>(numel(shape)) * dtype_size(dtype);
    memory_.push_back(std::make_unique<Memory>(std::max<std::size_t>(bytes, 64)));
    const TensorView view = make_view(memory_.back()->data(), dtype, shape);
    if (dtype_is_floating(dtype))
      backend_.fill_uniform(context_, view, {memory_.size(), 0}, 0, low, high);
    return view;
  }
  TensorView tensor(const Shape& shape) { return tensor(shape, dtype_); }
  TensorView ids(std::int64_t count, std::int64_t limit) {
    const TensorView view = tensor({count}, DType::kInt64);
    const PhiloxStream random{99, 1};
    for (std::int64_t i = 0; i < count; ++i)
      view.as<std::int64_t>()[i] =
          static_cast<std::int64_t>(random.at(i) % static_cast<std::uint64_t>(limit));
    return view;
  }

  // Measures the kernel between probes of as many bytes, and prints a line.
  void measure(const Case& c) {
    if (c.name.find(options_.filter) == std::string::npos) return;
    const auto probe = std::min(kProbeBytes, static_cast<std::size_t>(c.bytes / 2.0) / 64 * 64);
    double kernel = 1e30, plain = 1e30, streamed = 1e30;
    for (int r = 0; r < options_.repetitions + 1; ++r) {
      const double a = copy(CopyKind::kPlain, probe);
      const auto start = Clock::now();
      c.run();
      const double b = seconds_since(start);
      const double n = copy(CopyKind::kNonTemporal, probe);
      // The first round warms up.
      if (r == 0) continue;
      plain = std::min(plain, a);
      kernel = std::min(kernel, b);
      streamed = std::min(streamed, n);
    }
    print(c, kernel, 2.0 * static_cast<double>(probe) / plain,
          2.0 * static_cast<double>(probe) / streamed);
  }

  Backend& backend() { return backend_; }
  const KernelContext& context() const { return context_; }
  DType dtype() const { return dtype_; }
  const KernelsOptions& options() const { return options_; }
  /// Frees the tensors made so far.
  void clear() { memory_.clear(); }

 private:
  static constexpr std::size_t kProbeBytes = std::size_t{256} << 20;

  // Each copy takes the next window of the buffers: what the last one touched may still be in a
  // cache.
  double copy(CopyKind kind, std::size_t bytes) {
    if (window_ + bytes > kProbeBytes) window_ = 0;
    const double seconds = copy_seconds(context_.threads, kind, destination_.data() + window_,
                                        source_.data() + window_, bytes);
    window_ += bytes;
    return seconds;
  }

  void print(const Case& c, double seconds, double plain, double streamed) const {
    const double rate = c.bytes / seconds;
    if (options_.json) {
      std::printf("%s\n", nlohmann::json{{"kernel", c.name},
                                         {"dtype", options_.dtype},
                                         {"threads", options_.threads},
                                         {"target", kernels::cpu::current_target()},
                                         {"seconds", seconds},
                                         {"bytes_per_second", rate},
                                         {"over_plain_copy", rate / plain},
                                         {"over_non_temporal_copy", rate / streamed}}
                              .dump()
                              .c_str());
    } else {
      std::printf("%-24s %9.3f ms %7.2f GB/s  %5.2f of a copy  %5.2f of a non-temporal copy\n",
                  c.name.c_str(), seconds * 1e3, rate / 1e9, rate / plain, rate / streamed);
    }
    std::fflush(stdout);
  }

  KernelsOptions options_;
  Memory source_, destination_;
  Backend& backend_;
  KeptWorkspace scratch_;
  KernelContext context_;
  DType dtype_ = DType::kFloat32;
  std::size_t window_ = 0;
  std::vector<std::unique_ptr<Memory>> memory_;
};

double bytes_of(std::initializer_list<TensorView> views) {
  double total = 0.0;
  for (const TensorView& view : views) total += static_cast<double>(view.bytes());
  return total;
}

void bench_unary(Bench& b) {
  const TensorView x = b.tensor({4096, 3072});
  const TensorView y = b.tensor({4096, 3072});
  const TensorView dy = b.tensor({4096, 3072});
  const struct {
    const char* name;
    UnaryOp op;
  } ops[] = {{"gelu_tanh", UnaryOp::kGeluTanh},
             {"gelu", UnaryOp::kGelu},
             {"silu", UnaryOp::kSilu},
             {"exp", UnaryOp::kExp},
             {"mul_scalar", UnaryOp::kMul}};
  for (const auto& [name, op] : ops) {
    b.measure({name, bytes_of({x, y}),
               [&b, op = op, &x, &y] { b.backend().unary(b.context(), op, y, x, 2.0); }});
    b.measure({std::string(name) + "_backward", bytes_of({x, dy, y}), [&b, op = op, &x, &y, &dy] {
                 b.backend().unary_backward(b.context(), op, y, dy, x, {}, 2.0);
               }});
  }
  b.measure({"swiglu", bytes_of({x, dy, y}), [&] { b.backend().swiglu(b.context(), y, x, dy); }});
  b.measure({"dropout", bytes_of({x, y}), [&] {
               b.backend().dropout(b.context(), y, x, {0.1f, {1, 2}, 0});
             }});
  b.measure({"fill_normal", bytes_of({y}), [&] {
               b.backend().fill_normal(b.context(), y, {1, 2}, 0, 0.0f, 0.02f);
             }});
  b.measure({"copy", bytes_of({x, y}), [&] { b.backend().copy(b.context(), y, x); }});
  b.clear();
}

void bench_moves(Bench& b) {
  const TensorView x = b.tensor({4096, 3072}, DType::kFloat32);
  const TensorView half = b.tensor({4096, 3072}, DType::kBFloat16);
  const TensorView y = b.tensor({3072, 4096}, DType::kFloat32);
  TensorView transposed = x;
  std::swap(transposed.shape[0], transposed.shape[1]);
  std::swap(transposed.strides[0], transposed.strides[1]);
  b.measure(
      {"cast_to_bfloat16", bytes_of({x, half}), [&] { b.backend().copy(b.context(), half, x); }});
  b.measure(
      {"cast_from_bfloat16", bytes_of({x, half}), [&] { b.backend().copy(b.context(), x, half); }});
  b.measure({"transpose", bytes_of({x, y}), [&] { b.backend().copy(b.context(), y, transposed); }});
  const TensorView columns = b.tensor({1, 3072}, DType::kFloat32);
  const TensorView rows = b.tensor({4096, 1}, DType::kFloat32);
  b.measure({"sum_rows", bytes_of({x}),
             [&] { b.backend().reduce(b.context(), ReduceOp::kSum, rows, x, 0.0); }});
  b.measure({"sum_columns", bytes_of({x}),
             [&] { b.backend().reduce(b.context(), ReduceOp::kSum, columns, x, 0.0); }});
  const TensorView sum = b.tensor({1}, DType::kFloat32);
  b.measure({"sum_of_squares", bytes_of({x}), [&] {
               b.backend().sum_of_squares(b.context(), sum, {&x, 1}, false);
             }});
  b.clear();
}

void bench_norms(Bench& b) {
  const Shape shape{16384, 768};
  const TensorView x = b.tensor(shape), y = b.tensor(shape), dy = b.tensor(shape),
                   sum = b.tensor(shape);
  const TensorView weight = b.tensor({768}, DType::kFloat32),
                   bias = b.tensor({768}, DType::kFloat32);
  const TensorView dweight = b.tensor({768}, DType::kFloat32),
                   dbias = b.tensor({768}, DType::kFloat32);
  const TensorView mean = b.tensor({16384}, DType::kFloat32);
  const TensorView rstd = b.tensor({16384}, DType::kFloat32, 0.5f, 1.0f);
  const kernels::NormViews plain{y, {}, mean, rstd, x, {}, weight, bias};
  const kernels::NormViews rms{y, {}, {}, rstd, x, {}, weight, {}};
  const kernels::NormViews added{y, sum, mean, rstd, x, dy, weight, bias};
  kernels::NormGrads grads{y, dweight, dbias, dy, x, weight, mean, rstd, false, true};
  Backend& backend = b.backend();
  const KernelContext& context = b.context();
  b.measure({"residual_add", bytes_of({x, dy, y}),
             [&] { backend.binary(context, BinaryOp::kAdd, y, x, dy); }});
  b.measure({"layer_norm", bytes_of({x, y}), [&] { backend.norm(context, plain, {}); }});
  b.measure({"layer_norm_backward", bytes_of({x, dy, y}),
             [&] { backend.norm_backward(context, grads); }});
  grads.accumulate_dx = true;
  b.measure({"layer_norm_backward_add", bytes_of({x, dy, y, y}),
             [&] { backend.norm_backward(context, grads); }});
  b.measure({"rms_norm", bytes_of({x, y}),
             [&] { backend.norm(context, rms, {.kind = kernels::NormKind::kRms}); }});
  b.measure({"add_norm", bytes_of({x, dy, y, sum}), [&] { backend.norm(context, added, {}); }});
  b.clear();
}

void bench_rows(Bench& b) {
  const TensorView x = b.tensor({12288, 1024}), y = b.tensor({12288, 1024}),
                   dy = b.tensor({12288, 1024});
  Backend& backend = b.backend();
  const KernelContext& context = b.context();
  b.measure({"softmax", bytes_of({x, y}), [&] { backend.softmax(context, y, x, false); }});
  b.measure({"softmax_backward", bytes_of({x, dy, y}),
             [&] { backend.softmax_backward(context, y, dy, x, false); }});
  const TensorView q = b.tensor({16, 12, 1024, 64}), rotated = b.tensor({16, 12, 1024, 64});
  kernels::RopeOptions rope;
  rope.cos = b.tensor({1024, 32}, DType::kFloat32);
  rope.sin = b.tensor({1024, 32}, DType::kFloat32);
  b.measure({"rope", bytes_of({q, rotated}), [&] { backend.rope(context, rotated, q, rope); }});
  const auto tokens_first = [](TensorView view) {
    view.shape = {16, 12, 1024, 64};
    view.strides = {12 * 1024 * 64, 64, 12 * 64, 1};
    return view;
  };
  b.measure({"rope_tokens_first", bytes_of({q, rotated}),
             [&] { backend.rope(context, tokens_first(rotated), tokens_first(q), rope); }});
  b.clear();
}

void bench_loss(Bench& b) {
  const std::int64_t rows = 1024, classes = 50257;
  const TensorView logits = b.tensor({rows, classes}), dlogits = b.tensor({rows, classes});
  const TensorView targets = b.ids(rows, classes);
  const TensorView losses = b.tensor({rows}, DType::kFloat32),
                   lse = b.tensor({rows}, DType::kFloat32);
  Backend& backend = b.backend();
  const KernelContext& context = b.context();
  const kernels::CrossEntropyRows rows_of_loss{logits, targets, losses, lse};
  b.measure({"cross_entropy", bytes_of({logits}),
             [&] { backend.cross_entropy(context, rows_of_loss, {}); }});
  b.measure({"cross_entropy_backward", bytes_of({logits, dlogits}),
             [&] { backend.cross_entropy_backward(context, dlogits, {}, rows_of_loss, {}); }});
  b.clear();
  const TensorView weight = b.tensor({classes, 768}), y = b.tensor({16384, 768});
  const TensorView dweight = b.tensor({classes, 768}, DType::kFloat32);
  const TensorView ids = b.ids(16384, classes);
  b.measure({"embedding", bytes_of({y, y}), [&] { backend.embedding(context, y, weight, ids); }});
  b.measure({"embedding_backward", 2.0 * 4.0 * 16384 * 768 + bytes_of({y}),
             [&] { backend.embedding_backward(context, dweight, y, ids, -1); }});
  b.clear();
}

void bench_optimizer(Bench& b) {
  const Shape shape{b.options().adam_elements};
  const TensorView master = b.tensor(shape, DType::kFloat32),
                   grad = b.tensor(shape, DType::kFloat32);
  const TensorView m = b.tensor(shape, DType::kFloat32),
                   v = b.tensor(shape, DType::kFloat32, 0.1f, 1.0f);
  const TensorView working = b.tensor(shape, DType::kBFloat16);
  const TensorView rate = b.tensor({1}, DType::kFloat32, 1e-6f, 1e-6f);
  const TensorView step = b.ids(1, 1);
  b.backend().fill(b.context(), step, 1.0);
  for (const bool with_working : {false, true}) {
    const std::vector<kernels::OptimizerTensor> tensors{
        {master, grad, m, v, with_working ? working : TensorView{}, 0.1f}};
    const double bytes =
        bytes_of({master, master, grad, m, m, v, v}) + (with_working ? bytes_of({working}) : 0.0);
    b.measure({with_working ? "adamw_bfloat16_copy" : "adamw", bytes, [&] {
                 b.backend().adam_step(b.context(), tensors, {.lr = rate, .step = step}, {});
               }});
  }
  b.clear();
}

}  // namespace

int run_kernels_bench(int argc, char** argv) {
  KernelsOptions options;
  CLI::App app{"Bytes a second of the memory-bound kernels, against copies of the same run",
               "meshloom-bench kernels"};
  app.add_option("--threads", options.threads, "Threads")->check(CLI::PositiveNumber);
  app.add_option("--repetitions", options.repetitions, "Rounds; the best counts")
      ->check(CLI::PositiveNumber);
  app.add_option("--dtype", options.dtype,
                 "float32, bfloat16 or float16 where the kernel has a choice");
  app.add_option(
      "--target", options.target,
      "Instruction set: " + fmt::format("{}", fmt::join(kernels::cpu::available_targets(), ", ")));
  app.add_option("--filter", options.filter, "Only kernels whose name contains this");
  app.add_option("--adam-elements", options.adam_elements, "Parameters of the optimizer step")
      ->check(CLI::PositiveNumber);
  app.add_flag("--json", options.json, "One JSON line per kernel");
  CLI11_PARSE(app, argc, argv);
  kernels::cpu::force_target(options.target);
  Bench bench(options);
  for (const auto group :
       {bench_unary, bench_moves, bench_norms, bench_rows, bench_loss, bench_optimizer})
    group(bench);
  return 0;
}

}  // namespace meshloom::bench
