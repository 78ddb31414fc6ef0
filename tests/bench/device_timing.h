// SPDX-License-Identifier: Apache-2.0
// Times calls on a device by its own events, and what a device can do: products and copies.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "kernels/backend_table.h"
#include "kernels/base/integer_math.h"
#include "kernels/base/philox.h"

namespace meshloom::bench {

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
class DeviceTiming final : public kernels::Workspace {
 public:
  DeviceTiming(Device device, double seconds)
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
    backend_.fill_normal(context(), view, PhiloxStream{1, blocks.size()}, 0, 0.0f, 0.5f);
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
class DeviceTensors {
 public:
  explicit DeviceTensors(DeviceTiming& timing) : timing_(timing) {}
  /// A device that has failed keeps its memory, and whoever waited has told why.
  ~DeviceTensors();
  DeviceTensors(const DeviceTensors&) = delete;
  DeviceTensors& operator=(const DeviceTensors&) = delete;
  TensorView tensor(DType dtype, const Shape& shape) {
    return timing_.tensor(blocks_, dtype, shape);
  }

 private:
  DeviceTiming& timing_;
  std::vector<std::unique_ptr<DeviceBlock>> blocks_;
};

struct DeviceProduct {
  const char* name;
  std::int64_t m, n, k;
  bool a_transposed = false, b_transposed = false;
  bool accumulate = false;  ///< into float32, as gradients of weights
};

/// A product's operands and result in bfloat16.
struct ProductTensors {
  TensorView y, a, b;
  kernels::MatmulOptions options;
};
ProductTensors make_product(DeviceTensors& tensors, const DeviceProduct& product);

/// Products of a training step: sixteen samples of 1,024 tokens of GPT-2 124M (weights [in, out]),
/// four of 2,048 of Llama 1B ([out, in]); or two small ones, for a device that is slow.
std::vector<DeviceProduct> step_products(bool tiny);

double operations_of(const DeviceProduct& product);
/// Operations a second.
double product_rate(DeviceTiming& timing, const DeviceProduct& product);
/// Bytes a second, read and written.
double copy_rate(DeviceTiming& timing, std::int64_t elements);

/// What bounds all else: a large product in bfloat16 and a large copy.
struct DeviceCeilings {
  double product = 0.0;  ///< operations a second
  double copy = 0.0;     ///< bytes a second
};
DeviceCeilings measure_ceilings(DeviceTiming& timing, bool tiny);

}  // namespace meshloom::bench
