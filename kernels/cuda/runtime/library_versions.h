// SPDX-License-Identifier: Apache-2.0
// Which libraries the backend computes with. The emulated device of the tests has a function of its
// own in place of library_versions.cpp.
#pragma once

#include <string>

namespace meshloom::kernels::cuda {

/// "cuBLASLt 13.1.0, cuDNN 9.19.0": those that were found at run time.
std::string library_versions();

}  // namespace meshloom::kernels::cuda
