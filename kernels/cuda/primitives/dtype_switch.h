// SPDX-License-Identifier: Apache-2.0
// From a dtype that is known at run time to a kernel's template argument. For .cu files, on the
// host.
#pragma once

#include "kernels/base/dtype.h"
#include "kernels/cuda/device.h"

namespace meshloom::kernels::cuda {

/// Throws Unimplemented: "<what> of <dtype> is not built yet on cuda" (runtime/check.cpp).
[[noreturn]] void refuse_dtype(const char* what, DType dtype);

template <class T>
struct TypeTag {
  using Type = T;
};

/// Calls `body(TypeTag<T>{})` for float32, bfloat16, float16 or float64; `what` names the call in
/// the refusal of others.
template <class Body>
void for_floating(const char* what, DType dtype, Body&& body) {
  switch (dtype) {
    case DType::kFloat32: return body(TypeTag<float>{});
    case DType::kBFloat16: return body(TypeTag<__nv_bfloat16>{});
    case DType::kFloat16: return body(TypeTag<__half>{});
    case DType::kFloat64: return body(TypeTag<double>{});
    default: refuse_dtype(what, dtype);
  }
}

}  // namespace meshloom::kernels::cuda
