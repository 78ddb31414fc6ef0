// SPDX-License-Identifier: Apache-2.0
#include "daemon/train/run/run_values.h"

#include <numbers>

#include "kernels/base/error.h"

namespace meshloom::train {
namespace {

LossSum sum_of(std::span<const LossSum> batches) {
  LossSum total;
  for (const LossSum& batch : batches) {
    total.loss += batch.loss;
    total.labels += batch.labels;
    total.bytes += batch.bytes;
  }
  return total;
}

}  // namespace

double mean_loss(std::span<const LossSum> batches) {
  const LossSum total = sum_of(batches);
  if (total.labels == 0.0)
    throw InvalidArgument("evaluate: the validation batches have no label that counts");
  return total.loss / total.labels;
}

std::optional<double> bits_per_byte(std::span<const LossSum> batches) {
  const LossSum total = sum_of(batches);
  if (total.bytes <= 0.0) return std::nullopt;
  return total.loss / (std::numbers::ln2 * total.bytes);
}

}  // namespace meshloom::train
