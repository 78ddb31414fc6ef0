// SPDX-License-Identifier: Apache-2.0
#include "daemon/control/host/address_space.h"

#include <gtest/gtest.h>

#include "kernels/base/error.h"

namespace meshloom::control {
namespace {

TEST(AddressSpace, TooLittleIsRefusedWithWhatIsThere) {
  EXPECT_NO_THROW(check_address_space(kLeastAddressSpace));
  EXPECT_NO_THROW(check_address_space()) << "of the tests";
  try {
    check_address_space(500'000'000);
    FAIL() << "nothing was thrown";
  } catch (const ResourceExhausted& error) {
    EXPECT_EQ(error.reason(), "ADDRESS_SPACE_LIMIT");
    EXPECT_EQ(error.metadata().at("allowed_bytes"), "500000000");
    EXPECT_NE(std::string(error.what()).find("476 MiB, expected at least 2048 MiB"),
              std::string::npos)
        << error.what();
  }
}

}  // namespace
}  // namespace meshloom::control
