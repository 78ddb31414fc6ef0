// SPDX-License-Identifier: Apache-2.0
#include "tests/support/test_tensor.h"

#include <algorithm>
#include <cstring>
#include <numbers>

#include "kernels/cpu/simd/dispatch.h"

namespace meshloom::kernels::test {
namespace {

constexpr std::byte kUnset{0xff};

/// Bytes behind a tensor of the CPU that nobody may write. Elsewhere the device itself finds who
/// leaves a block.
std::size_t guard_bytes() { return meshloom::testing::test_device() == kCpuDevice ? 64 : 0; }

TensorView bytes_at(void* data, std::size_t count, Device device) {
  return make_view(data, DType::kUInt8, {static_cast<std::int64_t>(count)}, device);
}

std::int64_t offset_of(const TensorView& view, std::int64_t flat) {
  std::int64_t result = 0;
  for (int d = view.ndim() - 1; d >= 0; --d) {
    result += flat % view.size(d) * view.stride(d);
    flat /= view.size(d);
  }
  return result;
}

}  // namespace

struct TestTensor::State {
  TensorView view;
  std::shared_ptr<Storage> storage;
  std::vector<std::byte> host;  ///< the whole block
  std::int64_t start = 0;       ///< bytes in front of the first element
  bool dense = false;           ///< elements follow each other in row-major order
  bool host_is_newer = true;
  bool device_is_newer = false;
};

TestTensor::TestTensor(const Shape& shape, DType dtype, Layout layout) {
  Strides strides = contiguous_strides(shape);
  std::int64_t elements = meshloom::numel(shape);
  if (layout == Layout::kPermuted || layout == Layout::kPadded) {
    const bool padded = layout == Layout::kPadded;
    std::int64_t stride = 1;
    for (int i = 0; i < shape.size(); ++i) {
      const int d = padded ? shape.size() - 1 - i : i;
      strides[d] = stride;
      stride = stride * shape[d] + (padded ? 3 : 0);
    }
    elements = stride;
  }
  make(dtype, shape, strides, elements, layout == Layout::kOddStart ? 1 : 0);
}

TestTensor::TestTensor(DType dtype, const Shape& shape, std::vector<int> order, std::int64_t gap) {
  if (order.empty())
    for (int d = 0; d < shape.size(); ++d) order.push_back(d);
  Strides strides = shape;
  std::int64_t step = 1;
  for (auto it = order.rbegin(); it != order.rend(); ++it) {
    strides[*it] = step;
    step *= shape[*it] + (it == order.rbegin() ? gap : 0);
  }
  make(dtype, shape, strides, step, 0);
}

void TestTensor::make(DType dtype, const Shape& shape, const Strides& strides,
                      std::int64_t elements, std::int64_t start) {
  state_ = std::make_shared<State>();
  const auto size = static_cast<std::int64_t>(dtype_size(dtype));
  state_->host.assign(static_cast<std::size_t>((elements + start) * size) + guard_bytes(), kUnset);
  state_->start = start * size;
  state_->dense = is_contiguous(shape, strides);
  state_->storage = allocate_on_device(state_->host.size());
  state_->view = {state_->storage->data() + state_->start, dtype, shape, strides,
                  meshloom::testing::test_device()};
}

const TensorView& TestTensor::view() const {
  State& state = *state_;
  if (state.host_is_newer && !state.host.empty())
    backend().copy_from_host(test_context(),
                             bytes_at(state.storage->data(), state.host.size(), state.view.device),
                             bytes_at(state.host.data(), state.host.size(), kCpuDevice));
  state.host_is_newer = false;
  state.device_is_newer = true;
  return state.view;
}

const Shape& TestTensor::shape() const { return state_->view.shape; }
DType TestTensor::dtype() const { return state_->view.dtype; }
std::int64_t TestTensor::numel() const { return state_->view.numel(); }

void TestTensor::download() const {
  State& state = *state_;
  if (!state.device_is_newer) return;
  state.device_is_newer = false;
  if (state.host.empty()) return;
  // Inputs come back as they went, in whichever run asks first, and are no result.
  const std::vector<std::byte> before = state.host;
  backend().copy_to_host(test_context(), bytes_at(state.host.data(), state.host.size(), kCpuDevice),
                         bytes_at(state.storage->data(), state.host.size(), state.view.device));
  if (state.host == before) return;
  note_download(state.host);
  expect_gaps_untouched();
}

void TestTensor::expect_gaps_untouched() const {
  const State& state = *state_;
  std::vector<std::byte> rest = state.host;
  if (state.dense) {
    std::memset(rest.data() + state.start, 0xff, state.view.bytes());
  } else {
    const auto size = static_cast<std::int64_t>(dtype_size(state.view.dtype));
    for (std::int64_t flat = 0; flat < state.view.numel(); ++flat)
      std::memset(rest.data() + state.start + offset_of(state.view, flat) * size, 0xff,
                  static_cast<std::size_t>(size));
  }
  const auto written =
      std::find_if(rest.begin(), rest.end(), [](std::byte byte) { return byte != kUnset; });
  ASSERT_TRUE(written == rest.end())
      << "a call wrote byte " << written - rest.begin() << " of a tensor "
      << to_string(state.view.shape) << ", which is no element";
}

std::byte* TestTensor::element(std::int64_t flat) const {
  const std::int64_t offset = state_->dense ? flat : offset_of(state_->view, flat);
  return state_->host.data() + state_->start +
         offset * static_cast<std::int64_t>(dtype_size(state_->view.dtype));
}

double TestTensor::at(std::int64_t flat) const {
  download();
  double value = 0.0;
  cpu::dispatch_stored(state_->view.dtype, "at", [&]<typename T>(cpu::TypeTag<T>) {
    T stored;
    std::memcpy(&stored, element(flat), sizeof(T));
    value = cpu::convert<double>(stored);
  });
  return value;
}

void TestTensor::set(std::int64_t flat, double value) const {
  download();
  cpu::dispatch_stored(state_->view.dtype, "set", [&]<typename T>(cpu::TypeTag<T>) {
    const T stored = cpu::convert<T>(value);
    std::memcpy(element(flat), &stored, sizeof(T));
  });
  state_->host_is_newer = true;
}

std::int64_t TestTensor::int64_at(std::int64_t flat) const {
  download();
  std::int64_t value = 0;
  std::memcpy(&value, element(flat), sizeof(value));
  return value;
}

void TestTensor::set_int64(std::int64_t flat, std::int64_t value) const {
  download();
  std::memcpy(element(flat), &value, sizeof(value));
  state_->host_is_newer = true;
}

void TestTensor::fill(double value) const {
  for (std::int64_t i = 0; i < numel(); ++i) set(i, value);
}

void TestTensor::fill_random(std::mt19937& random, double scale) const {
  const double step = scale * 2.0 * std::numbers::sqrt3 / 4294967296.0;
  for (std::int64_t i = 0; i < numel(); ++i)
    set(i, (static_cast<double>(random()) - 2147483648.0) * step);
}

std::vector<double> TestTensor::values() const {
  std::vector<double> out(static_cast<std::size_t>(numel()));
  for (std::int64_t i = 0; i < numel(); ++i) out[static_cast<std::size_t>(i)] = at(i);
  return out;
}

std::vector<std::byte> TestTensor::bytes() const {
  download();
  const auto begin = state_->host.begin() + state_->start;
  return {begin, begin + static_cast<std::int64_t>(state_->view.bytes())};
}

TestTensor TestTensor::copy() const {
  download();
  TestTensor other;
  other.state_ = std::make_shared<State>(*state_);
  other.state_->storage = allocate_on_device(state_->host.size());
  other.state_->view.data = other.state_->storage->data() + state_->start;
  other.state_->host_is_newer = true;
  return other;
}

TestTensor zeros(const Shape& shape, DType dtype, Layout layout) {
  TestTensor tensor(shape, dtype, layout);
  tensor.fill(0.0);
  return tensor;
}

TestTensor tensor_of(const std::vector<double>& values, DType dtype) {
  TestTensor tensor({static_cast<std::int64_t>(values.size())}, dtype);
  for (std::size_t i = 0; i < values.size(); ++i)
    tensor.set(static_cast<std::int64_t>(i), values[i]);
  return tensor;
}

TestTensor random_tensor(const Shape& shape, DType dtype, Rng& rng, double low, double high,
                         Layout layout) {
  TestTensor tensor(shape, dtype, layout);
  std::uniform_real_distribution<double> uniform(low, high);
  for (std::int64_t i = 0; i < tensor.numel(); ++i) tensor.set(i, uniform(rng));
  return tensor;
}

TestTensor random_ids(const Shape& shape, std::int64_t limit, Rng& rng) {
  TestTensor tensor(shape, DType::kInt64);
  std::uniform_int_distribution<std::int64_t> uniform(0, limit - 1);
  for (std::int64_t i = 0; i < tensor.numel(); ++i) tensor.set_int64(i, uniform(rng));
  return tensor;
}

}  // namespace meshloom::kernels::test
