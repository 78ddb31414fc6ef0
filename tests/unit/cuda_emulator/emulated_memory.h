// SPDX-License-Identifier: Apache-2.0
// Streams and memory of an emulated device, as tests of the emulator use them.
#pragma once

#include <cuda_runtime_api.h>
#include <gmock/gmock.h>

#include <stdexcept>
#include <string>
#include <vector>

#include "tests/support/cuda_emulator/emulator.h"

namespace meshloom::testing {

/// Throws what CUDA's runtime says.
inline void check(cudaError_t error) {
  if (error != cudaSuccess) throw std::runtime_error(cudaGetErrorString(error));
}

/// A stream of the thread's device, which is ended with the test.
class TestStream {
 public:
  TestStream() { check(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking)); }
  ~TestStream() { cudaStreamDestroy(stream_); }
  TestStream(const TestStream&) = delete;
  TestStream& operator=(const TestStream&) = delete;

  operator cudaStream_t() const { return stream_; }
  void finish() const { check(cudaStreamSynchronize(stream_)); }

 private:
  cudaStream_t stream_ = nullptr;
};

/// Elements in memory of the device.
template <class T>
class DeviceArray {
 public:
  explicit DeviceArray(std::size_t n) : n_(n) {
    check(cudaMalloc(reinterpret_cast<void**>(&data_), n * sizeof(T)));
  }
  DeviceArray(const std::vector<T>& values, cudaStream_t stream) : DeviceArray(values.size()) {
    check(cudaMemcpyAsync(data_, values.data(), n_ * sizeof(T), cudaMemcpyHostToDevice, stream));
  }
  ~DeviceArray() { cudaFree(data_); }
  DeviceArray(const DeviceArray&) = delete;
  DeviceArray& operator=(const DeviceArray&) = delete;

  T* data() const { return data_; }
  std::vector<T> values(cudaStream_t stream) const {
    std::vector<T> values(n_);
    check(cudaMemcpyAsync(values.data(), data_, n_ * sizeof(T), cudaMemcpyDeviceToHost, stream));
    return values;
  }

 private:
  T* data_ = nullptr;
  std::size_t n_;
};

/// `n` numbers that differ.
inline std::vector<float> ramp(int n) {
  std::vector<float> values(static_cast<std::size_t>(n));
  for (int i = 0; i < n; ++i) values[static_cast<std::size_t>(i)] = static_cast<float>(i % 97) - 40;
  return values;
}

/// The text of the one fault that was met since the last call; "" for none.
inline std::string only_fault() {
  const std::vector<std::string> faults = emulator::take_faults();
  EXPECT_LE(faults.size(), 1u);
  return faults.empty() ? "" : faults.front();
}

}  // namespace meshloom::testing
