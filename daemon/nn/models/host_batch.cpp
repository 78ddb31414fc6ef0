// SPDX-License-Identifier: Apache-2.0
#include "daemon/nn/models/host_batch.h"

#include <span>

#include "daemon/nn/models/model.h"

namespace meshloom::nn {

Batch to_batch(ExecutionContext& context, const HostBatch& host) {
  const Shape tokens{host.rows, host.length};
  Shape labels = tokens;
  if (host.targets > 1) labels.push_back(host.targets);
  const auto tensor = [&](const Shape& shape, const auto& values) {
    return values.empty() ? Tensor() : from_values(context, shape, std::span(values));
  };
  Batch batch;
  batch.input_ids = tensor(tokens, host.inputs);
  batch.labels = tensor(labels, host.labels);
  batch.position_ids = tensor(tokens, host.positions);
  batch.document_ids = tensor(tokens, host.documents);
  batch.label_weights = tensor(tokens, host.weights);
  return batch;
}

}  // namespace meshloom::nn
