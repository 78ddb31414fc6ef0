// SPDX-License-Identifier: Apache-2.0
// Machine: how fast a rank computes and sends, as measured or described.
#pragma once

#include <cstdint>
#include <string>

#include "kernels/base/dtype.h"
#include "planner/redistribute/topology.h"

namespace meshloom::planner {

/// Rates are what training sustains, not what a data sheet promises.
struct Machine {
  std::string name;
  double float32_flops = 0.0;  ///< of matrix products, per second, of one rank
  double bfloat16_flops = 0.0;
  /// The most that the device does of dense products, per second; 0: the rate above.
  double float32_peak_flops = 0.0;
  double bfloat16_peak_flops = 0.0;
  /// Attention's rate over that of a matrix product.
  double attention_efficiency = 0.5;
  double memory_bytes_per_second = 0.0;
  std::int64_t memory_bytes = 0;  ///< of one rank; 0: not known
  Topology topology;
  /// Part of the communication that can hide behind computing; 0 if the ranks' own cores move
  /// the bytes.
  double overlap = 0.0;
  /// Rates and memory are those of a host, and its ranks share them.
  bool shared_by_ranks = false;

  double flops(DType dtype) const {
    return dtype == DType::kBFloat16 ? bfloat16_flops : float32_flops;
  }
  double peak_flops(DType dtype) const {
    const double peak = dtype == DType::kBFloat16 ? bfloat16_peak_flops : float32_peak_flops;
    return peak > 0.0 ? peak : flops(dtype);
  }
};

/// Returns the machine as one of `ranks` ranks sees it. Throws InvalidArgument naming a rate that
/// is not positive.
Machine share_of_rank(const Machine& machine, std::int64_t ranks);

}  // namespace meshloom::planner
