// SPDX-License-Identifier: Apache-2.0
// On what the ranks listen.
#include <gmock/gmock.h>

#include <algorithm>

#include "tests/e2e/daemon_fixture.h"
#include "tests/support/source_folder.h"

namespace meshloom::e2e {
namespace {

using ::testing::Contains;
using ::testing::Each;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::ResultOf;

constexpr const char* kLoopback = "0100007F:";  // 127.0.0.1 as /proc writes it, also
                                                // as the end of an address of IPv6

class ListenersE2e : public DaemonTest {
 protected:
  void run_a_job() {
    TinyJob endless;
    endless.steps = 10'000'000;
    submit(endless, "running");
    ASSERT_TRUE(reaches_step("running", 2));
  }
};

TEST_F(ListenersE2e, OnlyRank0ListensAndOnLoopbackAlone) {
  start(3);
  run_a_job();
  const auto own = tcp_listeners(pids_[0]);
  // For clients: the ranks use Unix sockets.
  ASSERT_EQ(own.size(), 1u) << ::testing::PrintToString(own);
  EXPECT_THAT(own, Each(HasSubstr(kLoopback)));
  EXPECT_THAT(own, Contains(ResultOf(port_of, port())));
  for (const int rank : {1, 2})
    EXPECT_THAT(tcp_listeners(pids_[static_cast<std::size_t>(rank)]), IsEmpty()) << rank;
}

TEST_F(ListenersE2e, ALoneProcessListensForClientsAlone) {
  const Process alone({test::program("meshloomd"), "--listen", "127.0.0.1:0", "--state-dir",
                       state_.string(), "--data-dir", data_.string()},
                      folder_ / "alone.log");
  ASSERT_TRUE(eventually(20s, [&] { return std::filesystem::exists(state_ / "address"); }));
  const auto own = tcp_listeners(alone.pid());
  ASSERT_EQ(own.size(), 1u) << ::testing::PrintToString(own);
  EXPECT_THAT(own[0], HasSubstr(kLoopback));
}

TEST_F(ListenersE2e, AUsersOwnChoiceOfTransportsStands) {
  ::setenv("OMPI_MCA_btl", "self,tcp", 1);
  ::setenv("OMPI_MCA_btl_tcp_if_include", "lo", 1);
  start();
  ::unsetenv("OMPI_MCA_btl");
  ::unsetenv("OMPI_MCA_btl_tcp_if_include");
  ASSERT_EQ(pids_.size(), 2u);
  EXPECT_THAT(tcp_listeners(pids_[1]), Not(IsEmpty()));
}

TEST_F(ListenersE2e, OverSeveralHostsTheInterfaceMustBeNamed) {
  give_each_rank_a_host();
  EXPECT_EQ(launch(2, {"--listen", "127.0.0.1:0"}, "hosts.log")->wait(20s), 2);
  EXPECT_NE(read_file(folder_ / "hosts.log").find("name the interface of a closed network"),
            std::string::npos)
      << read_file(folder_ / "hosts.log");
  start(2, {"--mpi-interface", "lo"});
  // MPI has listeners of its own.
  const auto own = tcp_listeners(pids_.at(0));
  EXPECT_EQ(std::count_if(own.begin(), own.end(),
                          [](const std::string& listener) {
                            return listener.find(kLoopback) != std::string::npos;
                          }),
            3)
      << "for clients, ranks and heartbeats: " << ::testing::PrintToString(own);
  EXPECT_THAT(client({"status"}).output, HasSubstr("what MPI sends"));
}

}  // namespace
}  // namespace meshloom::e2e
