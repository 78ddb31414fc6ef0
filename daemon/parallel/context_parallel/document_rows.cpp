// SPDX-License-Identifier: Apache-2.0
#include "daemon/parallel/context_parallel/document_rows.h"

#include <algorithm>

#include "daemon/tensor/execution_context.h"
#include "daemon/tensor/ops/shape.h"

namespace meshloom::parallel {
namespace {

/// Batches whose storages live at once: those of a step and of an evaluation.
constexpr std::size_t kMostBatches = 8;

}  // namespace

std::shared_ptr<const planner::DocumentRows> DocumentReader::rows(const Tensor& ids) {
  std::erase_if(entries_, [](const Entry& entry) { return entry.storage.expired(); });
  const auto known = std::find_if(entries_.begin(), entries_.end(), [&](const Entry& entry) {
    return entry.storage.lock() == ids.storage() && entry.offset == ids.storage_offset() &&
           entry.shape == ids.shape() && entry.strides == ids.strides();
  });
  if (known != entries_.end()) return known->rows;
  const Tensor dense = ops::contiguous(ids.detach());
  std::vector<std::int64_t> values(static_cast<std::size_t>(ids.numel()));
  ExecutionContext& context = ids.context();
  context.backend().copy_to_host(context.kernel_context(),
                                 make_view(values.data(), DType::kInt64, dense.shape()),
                                 dense.view());
  auto rows = planner::document_rows(values, ids.size(0));
  ++reads_;
  if (entries_.size() == kMostBatches) entries_.erase(entries_.begin());
  entries_.push_back({ids.storage(), ids.storage_offset(), ids.shape(), ids.strides(), rows});
  return rows;
}

}  // namespace meshloom::parallel
