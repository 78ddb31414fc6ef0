// SPDX-License-Identifier: Apache-2.0
// TokenBatch: one micro batch of a rank on the host, whoever it is from.
#pragma once

#include <cstdint>
#include <vector>

#include "daemon/nn/models/host_batch.h"

namespace meshloom::train {

/// The model is given this batch, which knows where it belongs and what is known of it.
struct TokenBatch : nn::HostBatch {
  /// Index of row 0 among the samples of the optimizer step: inside the job's global batch, or
  /// since a client's last optimizer step.
  std::int64_t first_sample = 0;
  std::int64_t first_datum = 0;  ///< of a client's batch: among the data that the rank has

  // --- Known of a job's data alone
  std::int64_t counted = 0;  ///< labels that count
  /// So many tokens are trained on: as counted; with `masked` and of conversations all but padding.
  std::int64_t tokens = 0;
  double bytes = 0.0;  ///< of text that the labels stand for; 0: not known
  /// Lengths of what sees itself alone, padding left out: of the documents of each row with
  /// document_mask, else of the rows.
  std::vector<std::int64_t> spans;
};

}  // namespace meshloom::train
