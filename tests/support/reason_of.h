// SPDX-License-Identifier: Apache-2.0
// Why a call is refused.
#pragma once

#include <string>

#include "kernels/base/error.h"

namespace meshloom::test {

/// The reason of the Error that the call throws; empty if it throws none.
template <typename Call>
std::string reason_of(const Call& call) {
  try {
    call();
  } catch (const Error& error) {
    return error.reason();
  }
  return "";
}

}  // namespace meshloom::test
