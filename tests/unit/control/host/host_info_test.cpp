// SPDX-License-Identifier: Apache-2.0
#include "daemon/control/host/host_info.h"

#include <gtest/gtest.h>

namespace meshloom::control {
namespace {

TEST(HostInfo, QuotasAreReadAsTheKernelWritesThem) {
  EXPECT_EQ(cores_of_quota("max 100000"), 0);
  EXPECT_EQ(cores_of_quota("200000 100000"), 2);
  EXPECT_EQ(cores_of_quota("150000 100000"), 2);
  EXPECT_EQ(cores_of_quota("50000 100000"), 1);
  EXPECT_EQ(cores_of_quota(""), 0);
}

}  // namespace
}  // namespace meshloom::control
