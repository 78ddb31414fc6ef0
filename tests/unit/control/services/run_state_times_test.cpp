// SPDX-License-Identifier: Apache-2.0
// How long the saved states of a run are kept, with fake runs on two ranks.
#include <gtest/gtest.h>

#include <string>
#include <thread>
#include <vector>

#include "tests/support/eventually.h"
#include "tests/unit/control/run_client_fixture.h"

namespace meshloom::control {
namespace {

using namespace std::chrono_literals;

using RunStateTimesTest = RunServiceTest;

TEST_F(RunStateTimesTest, StatesGoAfterTheirTimeButTheNewestAndOneThatIsNeeded) {
  start();
  Client client = with_run();
  client.wait_for(v1::RUN_STATE_READY);
  const auto save = [&](int seq, const std::string& name, std::int64_t ttl) {
    v1::SaveStateRequest request;
    request.set_name(name);
    request.set_ttl_seconds(ttl);
    (*request.mutable_user_metadata())["of"] = name;
    client.save_state(seq, request);
    EXPECT_EQ(client.wait(seq).state(), v1::OPERATION_STATE_SUCCEEDED);
  };
  save(1, "a", 100);
  save(2, "b", 100);
  save(3, "kept", 0);
  save(4, "newest", 50);
  v1::RunSpec spec;
  spec.set_state(client.run_.name() + "/states/b");
  Client waiting = with_run(spec);
  EXPECT_EQ(client.get().saved(0).expires_in_seconds(), 100);
  EXPECT_EQ(client.get().saved(0).user_metadata().at("of"), "a");
  const auto names = [&] {
    std::vector<std::string> all;
    const v1::Run run = client.get();
    for (const auto& state : run.saved())
      all.push_back(state.name().substr(client.run_.name().size() + 8));
    return all;
  };
  plan_.uptime += 99;
  std::this_thread::sleep_for(500ms);
  EXPECT_EQ(names().size(), 4u);
  plan_.uptime += 1;
  const std::vector<std::string> left = {"b", "kept", "newest"};
  test::eventually([&] { return names() == left; });
  std::this_thread::sleep_for(500ms);
  EXPECT_EQ(names(), left);
  v1::SaveStateRequest wrong;
  wrong.set_ttl_seconds(-1);
  wrong.set_name("x");
  EXPECT_EQ(info_of(client.save_state(5, wrong)).metadata().at("field"), "ttl_seconds");
  // A stop in good order saves the run anew: what was the newest state is not needed any more.
  restart();
  Client after = this->client();
  after.run_ = client.run_;
  test::eventually([&] { return after.get().saved_size() == 3; });
  const v1::Run run = after.get();
  ASSERT_EQ(run.saved_size(), 3);
  EXPECT_EQ(run.saved(0).name(), client.run_.name() + "/states/b");
  EXPECT_EQ(run.saved(0).ttl_seconds(), 100);
  EXPECT_EQ(run.saved(1).user_metadata().at("of"), "kept");
  EXPECT_EQ(run.saved(2).name(), client.run_.name() + "/states/stop-0");
}

TEST_F(RunStateTimesTest, ALeasesStateIsKeptForAWeek) {
  start();
  v1::RunSpec spec;
  spec.set_lease_seconds(1);
  Client client = with_run(spec);
  client.forward_backward(1, {1});
  client.optim_step(2);
  const v1::Run closed = client.wait_for(v1::RUN_STATE_CLOSED);
  ASSERT_EQ(closed.saved_size(), 1);
  EXPECT_EQ(closed.saved(0).ttl_seconds(), 7 * 24 * 3600);
  plan_.uptime += 7 * 24 * 3600;
  test::eventually([&] { return client.get().saved_size() == 0; });
  EXPECT_EQ(client.get().saved_size(), 0);
}

}  // namespace
}  // namespace meshloom::control
