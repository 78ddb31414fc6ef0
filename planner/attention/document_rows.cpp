// SPDX-License-Identifier: Apache-2.0
#include "planner/attention/document_rows.h"

namespace meshloom::planner {

std::shared_ptr<const DocumentRows> document_rows(std::span<const std::int64_t> ids,
                                                  std::int64_t rows) {
  auto all = std::make_shared<DocumentRows>();
  const std::size_t length = rows > 0 ? ids.size() / static_cast<std::size_t>(rows) : 0;
  for (std::int64_t row = 0; row < rows; ++row) {
    const auto of_row = ids.subspan(static_cast<std::size_t>(row) * length, length);
    all->push_back(std::make_shared<const DocumentRow>(DocumentRow{
        {of_row.begin(), of_row.end()}, std::make_shared<const SequenceDocuments>(of_row)}));
  }
  return all;
}

}  // namespace meshloom::planner
