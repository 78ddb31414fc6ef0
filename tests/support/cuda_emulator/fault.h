// SPDX-License-Identifier: Apache-2.0
// Fault: what the emulated device refuses.
#pragma once

#include <driver_types.h>

#include <stdexcept>
#include <string>

namespace meshloom::emulator {

/// What was refused, with where and by whom, and as what a real device would tell it.
struct Fault {
  cudaError_t error = cudaSuccess;
  std::string text;
};

/// Carries a fault to the call of the host that met it. Never thrown on a fiber.
class FaultError : public std::runtime_error {
 public:
  FaultError(cudaError_t error, const std::string& text)
      : std::runtime_error(text), error_(error) {}
  cudaError_t error() const { return error_; }

 private:
  cudaError_t error_;
};

}  // namespace meshloom::emulator
