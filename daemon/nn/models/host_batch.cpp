// SPDX-License-Identifier: Apache-2.0
#include "daemon/nn/models/host_batch.h"

#include <span>
#include <type_traits>

#include "daemon/nn/models/model.h"
#include "daemon/tensor/host_uploads.h"

namespace meshloom::nn {

Batch to_batch(HostUploads& uploads, const HostBatch& host) {
  const Shape tokens{host.rows, host.length};
  Shape labels = tokens;
  if (host.targets > 1) labels.push_back(host.targets);
  const auto tensor = [&](const Shape& shape, const auto& values) {
    return values.empty() ? Tensor() : uploads.tensor(shape, std::span(values));
  };
  Batch batch;
  batch.input_ids = tensor(tokens, host.inputs);
  batch.labels = tensor(labels, host.labels);
  batch.position_ids = tensor(tokens, host.positions);
  batch.document_ids = tensor(tokens, host.documents);
  batch.label_weights = tensor(tokens, host.weights);
  return batch;
}

HostBatch some_tokens(const HostBatch& host, std::span<const std::int64_t> places) {
  const auto some = [&](const auto& values, std::int64_t each) {
    std::decay_t<decltype(values)> chosen;
    if (values.empty()) return chosen;
    chosen.reserve(places.size() * static_cast<std::size_t>(each));
    for (const std::int64_t place : places)
      chosen.insert(chosen.end(), values.begin() + place * each,
                    values.begin() + (place + 1) * each);
    return chosen;
  };
  return {.rows = host.rows,
          .length = host.rows > 0 ? static_cast<std::int64_t>(places.size()) / host.rows : 0,
          .targets = host.targets,
          .inputs = some(host.inputs, 1),
          .labels = some(host.labels, host.targets),
          .weights = some(host.weights, 1),
          .documents = some(host.documents, 1),
          .positions = some(host.positions, 1)};
}

}  // namespace meshloom::nn
