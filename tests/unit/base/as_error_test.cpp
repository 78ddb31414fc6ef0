// SPDX-License-Identifier: Apache-2.0
#include "daemon/base/as_error.h"

#include <gtest/gtest.h>

#include <system_error>

namespace meshloom::base {
namespace {

Error error_of(const auto& thrown) { return as_error(std::make_exception_ptr(thrown)); }

TEST(AsError, SaysWhenItIsAThreadThatDidNotStart) {
  const Error no_thread =
      error_of(std::system_error(std::make_error_code(std::errc::resource_unavailable_try_again)));
  EXPECT_EQ(no_thread.kind(), ErrorKind::kResourceExhausted);
  EXPECT_EQ(no_thread.reason(), "NO_THREAD");
  const Error other = error_of(std::system_error(std::make_error_code(std::errc::io_error)));
  EXPECT_EQ(other.kind(), ErrorKind::kInternal);
  EXPECT_EQ(error_of(std::bad_alloc()).reason(), "OUT_OF_MEMORY");
}

}  // namespace
}  // namespace meshloom::base
