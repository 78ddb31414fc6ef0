// SPDX-License-Identifier: Apache-2.0
// What devices are known not to offer, so that a call that ceases to be offered fails its test.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace meshloom::kernels::test {

/// The texts of the Unimplemented errors that kernel tests meet on the backend of this name, each
/// at least once.
const std::vector<std::string>& expected_refusals(std::string_view backend);

}  // namespace meshloom::kernels::test
