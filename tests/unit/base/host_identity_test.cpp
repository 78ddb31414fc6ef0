// SPDX-License-Identifier: Apache-2.0
#include "daemon/base/host_identity.h"

#include <gtest/gtest.h>

namespace meshloom::base {
namespace {

TEST(HostIdentity, IsOneLineThatStaysTheSame) {
  for (const auto& text : {&host_name, &boot_id}) {
    EXPECT_FALSE(text().empty());
    EXPECT_EQ(text().find('\n'), std::string::npos);
    EXPECT_EQ(text(), text());
  }
}

}  // namespace
}  // namespace meshloom::base
