// SPDX-License-Identifier: Apache-2.0
// DocumentRows: the documents of the rows of a batch, where schedules are made.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "planner/attention/mask.h"

namespace meshloom::planner {

/// DocumentRow has the documents of one row. Immutable.
struct DocumentRow {
  std::vector<std::int64_t> ids;  ///< by position
  std::shared_ptr<const SequenceDocuments> documents;
};
/// They are by row. What is planned for a batch holds its rows each by itself, so that the whole
/// ends with the batch.
using DocumentRows = std::vector<std::shared_ptr<const DocumentRow>>;

/// Makes the rows of ids [rows,S], row-major.
std::shared_ptr<const DocumentRows> document_rows(std::span<const std::int64_t> ids,
                                                  std::int64_t rows);

}  // namespace meshloom::planner
