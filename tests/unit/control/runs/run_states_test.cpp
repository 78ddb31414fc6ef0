// SPDX-License-Identifier: Apache-2.0
#include "daemon/control/runs/run_states.h"

#include "tests/unit/control/runs/stored_runs.h"

namespace meshloom::control {
namespace {

class KeptStatesTest : public StoredRunTest {
 protected:
  std::vector<std::string> names() {
    std::vector<std::string> names;
    for (const v1::SavedState& state : states_.newest(100)) names.push_back(state.name());
    return names;
  }

  SetClock clock_{1000};
  RunStates states_{store_, dir_, clock_, "r"};
};

TEST_F(KeptStatesTest, AStateInThePlaceOfAnotherTakesItsFilesAway) {
  EXPECT_TRUE(states_.empty());
  const v1::SavedState first = state("a", 1), second = state("a", 2);
  EXPECT_EQ(states_.keep(first).saved_at(), 1000);
  EXPECT_TRUE(has_files(first.folder()));
  states_.keep(second);
  EXPECT_FALSE(has_files(first.folder()));
  EXPECT_TRUE(has_files(second.folder()));
  EXPECT_EQ(states_.newest_readable()->seq(), 2);
  states_.keep(second);
  EXPECT_TRUE(has_files(second.folder())) << "it is its own successor";
}

TEST_F(KeptStatesTest, TheNewestAreToldOldestFirst) {
  for (int seq = 1; seq <= 3; ++seq) states_.keep(state(std::to_string(seq), seq));
  const auto newest = states_.newest(2);
  ASSERT_EQ(newest.size(), 2u);
  EXPECT_EQ(newest[0].seq(), 2);
  EXPECT_EQ(newest[1].seq(), 3);
}

TEST_F(KeptStatesTest, ADamagedStateIsSkippedAndNamedOnceNoneIsLeft) {
  states_.keep(state("a", 1));
  states_.keep(state("b", 2));
  states_.mark_damaged(state_resource("r", "b"), DataLoss("half of it is there"));
  EXPECT_EQ(states_.newest_readable()->seq(), 1);
  states_.mark_damaged(state_resource("r", "a"), DataLoss("all of it is gone"));
  EXPECT_FALSE(states_.newest_readable());
  EXPECT_FALSE(states_.empty());
  const Error error = states_.none_readable();
  EXPECT_EQ(error.reason(), "STATES_DAMAGED");
  EXPECT_EQ(std::string(error.what()),
            "none of the saved states of run \"r\" can be read; runs/r/states/a: all of it is "
            "gone; runs/r/states/b: half of it is there");
  states_.mark_damaged(state_resource("r", "unknown"), DataLoss("nothing happens"));
}

TEST_F(KeptStatesTest, RemovesWithFiles) {
  const v1::SavedState saved = states_.keep(state("a", 1));
  states_.remove(saved.name());
  EXPECT_FALSE(has_files(saved.folder()));
  EXPECT_EQ(reason_of([&] { states_.remove(saved.name()); }), "STATE_NOT_FOUND");
}

TEST_F(KeptStatesTest, ThoseWhoseTimeIsOverGoUnlessTheyAreNeeded) {
  for (const std::string name : {"forever", "old", "own", "needed", "young"}) {
    v1::SavedState saved = state(name, 1);
    saved.set_ttl_seconds(name == "forever" ? 0 : name == "young" ? 61 : 60);
    states_.keep(saved);
  }
  clock_.seconds += 60;
  EXPECT_EQ(states_.list(0, 10).first.at(4).expires_in_seconds(), 1);
  states_.remove_expired(state_resource("r", "own"), {state_resource("r", "needed")});
  const auto of = [](const std::string& name) { return state_resource("r", name); };
  EXPECT_EQ(names(),
            (std::vector<std::string>{of("forever"), of("own"), of("needed"), of("young")}));
}

}  // namespace
}  // namespace meshloom::control
