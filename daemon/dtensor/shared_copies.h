// SPDX-License-Identifier: Apache-2.0
// Redistributed copies that the uses of one tensor share.
#pragma once

#include "daemon/dtensor/decision_cache.h"
#include "daemon/tensor/layout.h"

namespace meshloom::dtensor {

/// The copy of the tensor for a use with these needs, if an op that was recorded with it is still
/// part of a graph that was not run backward; else undefined. All ranks find one or none does.
Tensor find_copy(TensorLayout& layout, const RedistributeSpecs& use);

/// Notes `copy`, the result of the node that made it from the tensor, for later uses: identities,
/// and copies of what is no leaf. An identity takes over the tensor's recipe
/// (TensorImpl::recompute).
void keep_copy(TensorLayout& layout, const Tensor& copy, const RedistributeSpecs& use);

}  // namespace meshloom::dtensor
