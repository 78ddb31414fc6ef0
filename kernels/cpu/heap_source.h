// SPDX-License-Identifier: Apache-2.0
// Memory of this process, for all kinds that the CPU's backend gives.
#pragma once

#include <memory>

#include "kernels/base/parallel_for.h"
#include "kernels/base/segment_source.h"

namespace meshloom::kernels::cpu {

/// Makes a source of anonymous memory with huge pages advised, touched once (by `threads`).
/// Segments reserve address space behind them and grow into it, so that usually there is one,
/// without gaps, and best fit wastes little.
std::unique_ptr<SegmentSource> make_heap_source(Threads threads = {});

}  // namespace meshloom::kernels::cpu
