// SPDX-License-Identifier: Apache-2.0
#include "daemon/control/host/host_info.h"

#include <gtest/gtest.h>

namespace meshloom::control {
namespace {

TEST(HostInfo, RanksOfOtherHostsAreHeardOnOneInterface) {
  const std::vector<InterfaceAddress> here = {
      {"lo", "127.0.0.1", true}, {"eth0", "192.0.2.7"}, {"eth1", "10.0.3.7"}, {"eth1", "10.0.4.7"}};
  const auto address = [&](const std::string& configured, const std::string& interface) {
    const RankAddress found = rank_address(configured, interface, here);
    return found.told + " " + found.listen;
  };
  EXPECT_EQ(address("", "eth1"), "10.0.3.7 10.0.3.7");
  EXPECT_EQ(address("", "10.0.4.0/24"), "10.0.4.7 10.0.4.7");
  EXPECT_EQ(address("", "10.0.0.0/16"), "10.0.3.7 10.0.3.7");
  EXPECT_EQ(address("", "192.0.2.7/32"), "192.0.2.7 192.0.2.7");
  EXPECT_EQ(address("", "eth9,10.9.0.0/16,eth1"), "10.0.3.7 10.0.3.7") << "the hosts differ";
  EXPECT_EQ(address("", "lo"), "127.0.0.1 127.0.0.1");
  for (const char* none : {"", "none", "eth", "10.0.3.0/x", "10.0.3.0/33", "x/8", "/"})
    EXPECT_EQ(address("", none), "192.0.2.7 192.0.2.7") << none;
  EXPECT_EQ(address("10.0.4.7", "eth0"), "10.0.4.7 10.0.4.7");
  EXPECT_EQ(address("node-1", "eth1"), "node-1 10.0.3.7");
  EXPECT_EQ(address("node-1", ""), "node-1 0.0.0.0");
  EXPECT_EQ(rank_address("", "eth1", {}).listen, "127.0.0.1");
}

TEST(HostInfo, TheLoopbackIsAmongTheAddressesOfThisHost) {
  bool is_there = false;
  for (const InterfaceAddress& item : interface_addresses())
    is_there = is_there || (item.address == "127.0.0.1" && item.is_loopback);
  EXPECT_TRUE(is_there);
}

}  // namespace
}  // namespace meshloom::control
