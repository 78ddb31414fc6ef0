// SPDX-License-Identifier: Apache-2.0
// Runs the tape backward.
#pragma once

#include <span>

#include "daemon/tensor/tensor.h"

namespace meshloom::autograd {

/// Feeds grads[i] (undefined: ones, for one-element outputs; of an output with a layout one in that
/// layout, Partial replaced by Replicate) into outputs[i] and accumulates into the leaves. Nodes
/// run in reverse order of recording; each is released right after it ran, so memory falls as
/// backward goes; ExecutionContext::poll is called after every node. A second backward over a
/// released graph throws FailedPrecondition. If a node throws, the graph is released as far as
/// it ran and the leaves keep what they have got: clear them before the next step.
void backward(std::span<const Tensor> outputs, std::span<const Tensor> grads = {});
void backward(const Tensor& output);

}  // namespace meshloom::autograd
