// SPDX-License-Identifier: Apache-2.0
// Tensors of seeded random values.
#pragma once

#include <cstdint>
#include <random>
#include <vector>

#include "daemon/tensor/tensor.h"

namespace meshloom::test {

inline std::vector<double> random_values(std::int64_t count, std::mt19937_64& rng, double low,
                                         double high) {
  std::uniform_real_distribution<double> uniform(low, high);
  std::vector<double> values(static_cast<std::size_t>(count));
  for (double& v : values) v = uniform(rng);
  return values;
}

inline Tensor random_tensor(ExecutionContext& context, const Shape& shape, std::mt19937_64& rng,
                            DType dtype = DType::kFloat64, double low = -1.0, double high = 1.0) {
  return from_values(context, shape, random_values(numel(shape), rng, low, high), dtype);
}

/// int64 in [0, limit).
inline Tensor random_ids(ExecutionContext& context, const Shape& shape, std::mt19937_64& rng,
                         std::int64_t limit) {
  std::uniform_int_distribution<std::int64_t> uniform(0, limit - 1);
  std::vector<std::int64_t> values(static_cast<std::size_t>(numel(shape)));
  for (std::int64_t& v : values) v = uniform(rng);
  return from_values(context, shape, values);
}

}  // namespace meshloom::test
