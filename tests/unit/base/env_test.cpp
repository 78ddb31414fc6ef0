// SPDX-License-Identifier: Apache-2.0
#include "daemon/base/env.h"

#include <gtest/gtest.h>
#include <stdlib.h>

#include "kernels/base/error.h"

namespace meshloom::base {
namespace {

TEST(Environment, EmptyCountsAsNotSetAndWrongValuesAreNamed) {
  ::setenv("MESHLOOM_STATE_DIR", "", 1);
  ::setenv("MESHLOOM_THREADS", "3", 1);
  EXPECT_FALSE(read_environment().state_dir.has_value());
  EXPECT_EQ(read_environment().threads, 3);
  ::setenv("MESHLOOM_THREADS", "3x", 1);
  EXPECT_THROW(read_environment(), InvalidArgument);
  ::unsetenv("MESHLOOM_STATE_DIR");
  ::unsetenv("MESHLOOM_THREADS");
}

}  // namespace
}  // namespace meshloom::base
