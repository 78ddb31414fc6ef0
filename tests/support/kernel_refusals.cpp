// SPDX-License-Identifier: Apache-2.0
#include "tests/support/kernel_refusals.h"

namespace meshloom::kernels::test {

const std::vector<std::string>& expected_refusals(std::string_view backend) {
  static const std::vector<std::string> everything_is_offered;
  static const std::vector<std::string> cuda{};
  return backend == "cuda" ? cuda : everything_is_offered;
}

}  // namespace meshloom::kernels::test
