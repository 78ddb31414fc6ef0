// SPDX-License-Identifier: Apache-2.0
#include "daemon/parallel/context_parallel/document_rows.h"

#include "daemon/tensor/execution_context.h"
#include "daemon/tensor/ops/shape.h"

namespace meshloom::parallel {

std::vector<std::int64_t> document_ids_of_row(const Tensor& ids, std::int64_t row) {
  const Tensor one = ops::contiguous(ops::slice(ids.detach(), 0, row, row + 1));
  std::vector<std::int64_t> values(static_cast<std::size_t>(ids.size(1)));
  ExecutionContext& context = ids.context();
  context.backend().copy_to_host(context.kernel_context(),
                                 make_view(values.data(), DType::kInt64, one.shape()), one.view());
  return values;
}

}  // namespace meshloom::parallel
