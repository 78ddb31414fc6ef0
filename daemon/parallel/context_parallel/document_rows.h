// SPDX-License-Identifier: Apache-2.0
// DocumentReader: document ids that came in device memory, on the host, where schedules are made.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "daemon/tensor/tensor.h"
#include "planner/attention/document_rows.h"

namespace meshloom::parallel {

/// Reads ids of which nobody said the rows (ops::SdpaOptions::document_rows), once for all layers
/// and passes of a batch. A batch that was made on the host needs no reader.
class DocumentReader {
 public:
  /// Returns the rows of `ids`, int64 [B,S] without a layout. The first call for a tensor waits for
  /// the device; tensors with the same memory get the same rows for as long as its storage lives,
  /// so ids must not be written to after that: other documents are another tensor.
  std::shared_ptr<const planner::DocumentRows> rows(const Tensor& ids);
  /// Returns how often the device was read.
  std::int64_t reads() const { return reads_; }

 private:
  struct Entry {
    std::weak_ptr<const Storage> storage;
    std::int64_t offset;
    Shape shape;
    Strides strides;
    std::shared_ptr<const planner::DocumentRows> rows;
  };

  std::vector<Entry> entries_;  ///< the latest last
  std::int64_t reads_ = 0;
};

}  // namespace meshloom::parallel
