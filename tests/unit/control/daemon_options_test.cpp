// SPDX-License-Identifier: Apache-2.0
#include "daemon/control/daemon_options.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/option_names.h"

namespace meshloom::control {
namespace {

TEST(DaemonOptions, NoTwoShareAName) {
  CLI::App app("test", "meshloomd");
  DaemonFlags flags;
  declare_daemon_options(app, flags);
  EXPECT_THAT(test::SharedOptionNames::of(app), ::testing::IsEmpty());
}

}  // namespace
}  // namespace meshloom::control
