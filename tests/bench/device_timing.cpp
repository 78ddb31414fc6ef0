// SPDX-License-Identifier: Apache-2.0
#include "tests/bench/device_timing.h"

#include <cstdio>
#include <exception>

#include "kernels/base/philox.h"

namespace meshloom::bench {
namespace {

TensorView transposed(const TensorView& view) {
  TensorView other = view;
  other.shape = {view.size(1), view.size(0)};
  other.strides = {view.strides[1], view.strides[0]};
  return other;
}

}  // namespace

DeviceTensors::~DeviceTensors() {
  try {
    timing_.wait();
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
  }
}

ProductTensors make_product(DeviceTensors& tensors, const DeviceProduct& p) {
  const auto given = [&](std::int64_t rows, std::int64_t columns, bool is_transposed) {
    return is_transposed ? transposed(tensors.tensor(DType::kBFloat16, {columns, rows}))
                         : tensors.tensor(DType::kBFloat16, {rows, columns});
  };
  ProductTensors product;
  product.a = given(p.m, p.k, p.a_transposed);
  product.b = given(p.k, p.n, p.b_transposed);
  product.y = tensors.tensor(p.accumulate ? DType::kFloat32 : DType::kBFloat16, {p.m, p.n});
  product.options.beta = p.accumulate ? 1.0f : 0.0f;
  return product;
}

std::vector<DeviceProduct> step_products(bool tiny) {
  if (tiny) return {{"tiny", 48, 40, 32}, {"tiny wgrad", 32, 40, 48, true, false, true}};
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

double operations_of(const DeviceProduct& p) {
  return 2.0 * static_cast<double>(p.m) * static_cast<double>(p.n) * static_cast<double>(p.k);
}

double product_rate(DeviceTiming& timing, const DeviceProduct& p) {
  DeviceTensors tensors(timing);
  const ProductTensors t = make_product(tensors, p);
  return operations_of(p) / timing.seconds_of([&] {
    timing.backend().matmul(timing.context(), t.y, t.a, t.b, t.options);
  });
}

double copy_rate(DeviceTiming& timing, std::int64_t elements) {
  DeviceTensors tensors(timing);
  const TensorView from = tensors.tensor(DType::kFloat32, {elements});
  const TensorView to = tensors.tensor(DType::kFloat32, {elements});
  return 8.0 * static_cast<double>(elements) /
         timing.seconds_of([&] { timing.backend().copy(timing.context(), to, from); });
}

DeviceCeilings measure_ceilings(DeviceTiming& timing, bool tiny) {
  const std::int64_t size = tiny ? 64 : 8192;
  return {product_rate(timing, {"ceiling", size, size, size}),
          copy_rate(timing, tiny ? 1 << 14 : 1 << 28)};
}

}  // namespace meshloom::bench
