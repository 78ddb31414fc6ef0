// SPDX-License-Identifier: Apache-2.0
// Document ids on the host, where schedules are made.
#pragma once

#include <cstdint>
#include <vector>

#include "daemon/tensor/tensor.h"

namespace meshloom::parallel {

/// Row `row` of ids, int64 [B,S] without a layout. Waits for the device.
std::vector<std::int64_t> document_ids_of_row(const Tensor& ids, std::int64_t row);

}  // namespace meshloom::parallel
