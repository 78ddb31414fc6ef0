// SPDX-License-Identifier: Apache-2.0
// Copies, products and attention on a device, at the shapes of training steps, each over what the
// device can do in the same run.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <exception>
#include <memory>
#include <nlohmann/json.hpp>
#include <numeric>
#include <string>
#include <vector>

#include "kernels/backend_table.h"
#include "kernels/base/integer_math.h"
#include "kernels/base/philox.h"
#include "tests/bench/bench.h"
#include "tests/bench/bench_device.h"

namespace meshloom::bench {
namespace {

struct DeviceBenchOptions {
  std::string device = "cpu";
  std::string only;
  bool tiny = false;
  double seconds = 0.1;
};

/// Memory of a device, given back at the end, when nothing works on it any more.
class DeviceBlock {
 public:
  DeviceBlock(SegmentSource& source, std::size_t bytes) : source_(source) {
    const std::size_t grain = source.granularity();
    bytes_ = round_up(std::max<std::size_t>(1, bytes), grain);
    data_ = source.acquire(bytes_);
  }
  ~DeviceBlock() { source_.release(data_, bytes_); }
  DeviceBlock(const DeviceBlock&) = delete;
  DeviceBlock& operator=(const DeviceBlock&) = delete;
  std::byte* data() const { return data_; }
  std::size_t bytes() const { return bytes_; }

 private:
  SegmentSource& source_;
  std::size_t bytes_ = 0;
  std::byte* data_ = nullptr;
};

/// A device with a stream, a workspace that keeps what it grew to, and a clock of its own.
class DeviceBench final : public kernels::Workspace {
 public:
  DeviceBench(Device device, double seconds)
      : device_(device),
        seconds_(seconds),
        backend_(kernels::backend_for(device)),
        source_(backend_.make_source(MemoryKind::kDevice, {1})),
        stream_(backend_.make_stream(device)),
        start_(backend_.make_event()),
        end_(backend_.make_event()) {}

  std::span<std::byte> reserve(std::size_t bytes) override {
    if (!scratch_ || scratch_->bytes() < bytes) {
      wait();
      scratch_.reset();
      scratch_ = std::make_unique<DeviceBlock>(*source_, bytes);
    }
    return {scratch_->data(), bytes};
  }

  kernels::Backend& backend() { return backend_; }
  kernels::KernelContext context() { return {{1}, stream_->get(), this}; }

  /// In a block that lives as long as `blocks`; random numbers about 0 where they are floating.
  TensorView tensor(std::vector<std::unique_ptr<DeviceBlock>>& blocks, DType dtype,
                    const Shape& shape) {
    blocks.push_back(std::make_unique<DeviceBlock>(
        *source_, static_cast<std::size_t>(numel(shape)) * dtype_size(dtype)));
    const TensorView view = make_view(blocks.back()->data(), dtype, shape, device_);
    if (!dtype_is_floating(dtype)) return view;
    backend_.fill_normal(context(), view, PhiloxStream{1, blocks.size()}, 0, 0.0, 0.5);
    return view;
  }

  void wait() {
    end_->record(stream_->get());
    end_->wait();
  }

  /// Seconds of a call, of the best of three rows of calls.
  template <typename Fn>
  double seconds_of(Fn&& fn) {
    fn();
    const double once = seconds_of_calls(1, fn);
    const int calls = std::clamp(static_cast<int>(seconds_ / 3 / std::max(once, 1e-7)), 1, 300);
    double best = once;
    for (int i = 0; i < 3; ++i) best = std::min(best, seconds_of_calls(calls, fn) / calls);
    return best;
  }

 private:
  template <typename Fn>
  double seconds_of_calls(int calls, Fn& fn) {
    start_->record(stream_->get());
    for (int i = 0; i < calls; ++i) fn();
    end_->record(stream_->get());
    return end_->seconds_since(*start_);
  }

  Device device_;
  double seconds_;
  kernels::Backend& backend_;
  std::unique_ptr<SegmentSource> source_;
  std::unique_ptr<DeviceBlock> scratch_;
  // Ends before what its work lies in, and waits for that work.
  std::shared_ptr<OwnedStream> stream_;
  std::unique_ptr<Event> start_, end_;
};

/// Blocks that are given back after all work on them.
class Blocks {
 public:
  explicit Blocks(DeviceBench& bench) : bench_(bench) {}
  /// A device that has failed keeps its memory, and whoever waited has told why.
  ~Blocks() {
    try {
      bench_.wait();
    } catch (const std::exception& error) {
      std::fprintf(stderr, "%s\n", error.what());
    }
  }
  Blocks(const Blocks&) = delete;
  Blocks& operator=(const Blocks&) = delete;
  TensorView tensor(DType dtype, const Shape& shape) {
    return bench_.tensor(blocks_, dtype, shape);
  }

 private:
  DeviceBench& bench_;
  std::vector<std::unique_ptr<DeviceBlock>> blocks_;
};

struct DeviceProduct {
  const char* name;
  std::int64_t m, n, k;
  bool a_transposed = false, b_transposed = false;
  bool accumulate = false;  ///< into float32, as gradients of weights
};

/// Sixteen samples of 1,024 tokens of GPT-2 124M (weights [in, out]), four of 2,048 of Llama 1B
/// ([out, in]).
std::vector<DeviceProduct> step_products() {
  return {{"gpt2 qkv", 16384, 2304, 768},
          {"gpt2 proj", 16384, 768, 768},
          {"gpt2 fc", 16384, 3072, 768},
          {"gpt2 fc out", 16384, 768, 3072},
          {"gpt2 logits", 4096, 50257, 768, false, true},
          {"gpt2 dgrad fc", 16384, 768, 3072, false, true},
          {"gpt2 dgrad fc out", 16384, 3072, 768, false, true},
          {"gpt2 wgrad qkv", 768, 2304, 16384, true, false, true},
          {"gpt2 wgrad fc", 768, 3072, 16384, true, false, true},
          {"gpt2 wgrad fc out", 3072, 768, 16384, true, false, true},
          {"llama q", 8192, 2048, 2048, false, true},
          {"llama kv", 8192, 512, 2048, false, true},
          {"llama up", 8192, 8192, 2048, false, true},
          {"llama down", 8192, 2048, 8192, false, true},
          {"llama dgrad up", 8192, 2048, 8192},
          {"llama wgrad up", 8192, 2048, 8192, true, false, true}};
}

TensorView transposed(const TensorView& view) {
  TensorView other = view;
  other.shape = {view.size(1), view.size(0)};
  other.strides = {view.strides[1], view.strides[0]};
  return other;
}

/// Operations a second.
double product_rate(DeviceBench& bench, const DeviceProduct& p) {
  Blocks blocks(bench);
  const auto given = [&](std::int64_t rows, std::int64_t columns, bool is_transposed) {
    return is_transposed ? transposed(blocks.tensor(DType::kBFloat16, {columns, rows}))
                         : blocks.tensor(DType::kBFloat16, {rows, columns});
  };
  const TensorView a = given(p.m, p.k, p.a_transposed), b = given(p.k, p.n, p.b_transposed);
  const TensorView y = blocks.tensor(p.accumulate ? DType::kFloat32 : DType::kBFloat16, {p.m, p.n});
  kernels::MatmulOptions options;
  options.beta = p.accumulate ? 1.0f : 0.0f;
  const double seconds =
      bench.seconds_of([&] { bench.backend().matmul(bench.context(), y, a, b, options); });
  return 2.0 * static_cast<double>(p.m) * static_cast<double>(p.n) * static_cast<double>(p.k) /
         seconds;
}

struct DeviceAttention {
  std::string name;
  std::int64_t batch, heads, kv_heads, sequence, dims;
  /// Positions are given, as they are counted anyway: on a GPU the own kernels compute it.
  bool with_positions = false;
};

struct AttentionRates {
  double forward, backward;  ///< operations a second, of the causal half
};

AttentionRates attention_rates(DeviceBench& bench, const DeviceAttention& p) {
  Blocks blocks(bench);
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

/// Bytes a second, read and written.
double copy_rate(DeviceBench& bench, std::int64_t elements) {
  Blocks blocks(bench);
  const TensorView from = blocks.tensor(DType::kFloat32, {elements});
  const TensorView to = blocks.tensor(DType::kFloat32, {elements});
  return 8.0 * static_cast<double>(elements) /
         bench.seconds_of([&] { bench.backend().copy(bench.context(), to, from); });
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

  DeviceBench bench(open_bench_device(options.device), options.tiny ? 0.0 : options.seconds);
  const std::int64_t size = options.tiny ? 64 : 8192;
  const double copy = copy_rate(bench, options.tiny ? 1 << 14 : 1 << 28);
  const double ceiling = product_rate(bench, {"ceiling", size, size, size});
  double worst_product = 1e30, worst_attention = 1e30;
  if (options.only != "ceilings") {
    std::vector<DeviceProduct> products = step_products();
    std::vector<DeviceAttention> attentions = {{"gpt2", 16, 12, 12, 1024, 64},
                                               {"llama", 4, 32, 8, 2048, 64}};
    if (options.tiny) {
      products = {{"tiny", 48, 40, 32}, {"tiny wgrad", 32, 40, 48, true, false, true}};
      attentions = {{"tiny", 1, 4, 2, 32, 16}};
    }
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
