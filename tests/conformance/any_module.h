// SPDX-License-Identifier: Apache-2.0
// A module of daemon/nn as a case describes it.
#pragma once

#include <functional>
#include <memory>

#include "daemon/nn/module.h"
#include "tests/conformance/object_reader.h"

namespace meshloom::conformance {

/// A module of any type, called with one tensor.
struct AnyModule {
  std::unique_ptr<nn::Module> module;
  std::function<Tensor(const Tensor&)> forward;
};

/// `description` is {"type": "Linear", ...} with torch's names of arguments. Parameters are float32
/// and not initialised. Throws InvalidArgument naming the key.
AnyModule make_module(const Json& description, ExecutionContext& context);

}  // namespace meshloom::conformance
