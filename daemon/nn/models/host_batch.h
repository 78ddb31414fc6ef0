// SPDX-License-Identifier: Apache-2.0
// HostBatch: the tokens of a batch on the host, before they become tensors.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace meshloom {
class HostUploads;
}

namespace meshloom::nn {

struct Batch;

/// HostBatch is a plain value, made alike by whoever feeds a model: nothing of it depends on a
/// mesh. Lists are row-major; an empty one means "not given", as an undefined tensor of a Batch.
struct HostBatch {
  std::int64_t rows = 0;                     ///< B; may be 0
  std::int64_t length = 0;                   ///< T
  std::int64_t targets = 1;                  ///< K, labels of each token
  std::vector<std::int64_t> inputs = {};     ///< [B,T]
  std::vector<std::int64_t> labels = {};     ///< [B,T,K], shifted; -100 does not count
  std::vector<float> weights = {};           ///< [B,T], of labels (Model::weighted_loss alone)
  std::vector<std::int64_t> documents = {};  ///< [B,T]
  std::vector<std::int64_t> positions = {};  ///< [B,T]
};

/// Returns the tensors of a batch that has rows, plain: labels are [B,T] where each token has one.
Batch to_batch(HostUploads& uploads, const HostBatch& host);
/// Returns the tokens at `places` of [B,T], row-major and as many of each row, in their order.
HostBatch some_tokens(const HostBatch& host, std::span<const std::int64_t> places);

}  // namespace meshloom::nn
