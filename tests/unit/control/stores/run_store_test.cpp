// SPDX-License-Identifier: Apache-2.0
#include "daemon/control/stores/run_store.h"

#include <gtest/gtest.h>

#include <memory>

#include "daemon/control/stores/names.h"
#include "kernels/base/error.h"
#include "tests/support/full_disk.h"
#include "tests/support/temp_folder.h"
#include "tests/unit/control/stores/journal_writer.h"

namespace meshloom::control {
namespace {

v1::RunRecord stored_run(const std::string& id) {
  v1::RunRecord record;
  record.mutable_run()->set_name(run_resource(id));
  record.mutable_run()->set_state(v1::RUN_STATE_READY);
  record.set_token_digest("digest");
  return record;
}

v1::SavedState stored_state(const std::string& run, const std::string& name, std::int64_t seq,
                            std::size_t metadata = 0) {
  v1::SavedState state;
  state.set_name(state_resource(run, name));
  state.set_epoch(1);
  state.set_seq(seq);
  state.set_next_seq(seq + 1);
  state.set_step(seq);
  state.set_folder(fmt::format("runs/{}/states/{}-{}", run, name, seq));
  if (metadata > 0) (*state.mutable_user_metadata())["of"] = std::string(metadata, 'm');
  return state;
}

v1::SavedWeights stored_weights(const std::string& run, const std::string& name) {
  v1::SavedWeights weights;
  weights.set_name(weights_resource(run, name));
  weights.set_storage(v1::WEIGHTS_STORAGE_DISK);
  return weights;
}

/// The store on a ledger of its own.
class OpenRuns {
 public:
  explicit OpenRuns(const std::filesystem::path& journal, const RunStore::Limits& limits = {})
      : store(limits),
        ledger_(std::make_unique<Ledger>(journal, std::vector<JournaledStore*>{&store})) {
    ledger_->start();
  }

  RunStore store;

 private:
  std::unique_ptr<Ledger> ledger_;
};

class RunStoreTest : public ::testing::Test {
 protected:
  std::filesystem::path journal() const { return folder_ / "journal"; }
  std::uintmax_t size() const { return std::filesystem::file_size(journal()); }
  static std::vector<std::string> names(const RunStore& store, const std::string& id) {
    std::vector<std::string> found;
    store.visit_states(id, [&](const v1::SavedState& state) {
      found.push_back(parse_state_name(state.name()).state);
    });
    return found;
  }
  static std::string refusal(const std::function<void()>& refused, const std::string& value) {
    try {
      refused();
    } catch (const ResourceExhausted& error) {
      return error.reason() + " " + error.metadata().at(value);
    }
    return "taken";
  }

  test::TempFolder folder_;
};

using StateNames = std::vector<std::string>;

TEST_F(RunStoreTest, WhatIsSavedIsFoundAgainInItsOrder) {
  {
    OpenRuns runs(journal());
    runs.store.put(stored_run("a"));
    runs.store.put(stored_run("b"));
    for (const char* name : {"one", "two", "three", "four"})
      runs.store.put_state(stored_state("a", name, 1, 100));
    runs.store.put_state(stored_state("a", "two", 5));  // becomes the newest
    v1::SavedState damaged = stored_state("a", "three", 1, 100);
    damaged.mutable_damage()->set_message("torn");
    runs.store.put_state_kept(damaged);  // stays where it is
    runs.store.remove_state("runs/a/states/one");
    runs.store.remove_state("runs/a/states/none");
    runs.store.put_state(stored_state("b", "other", 1));
    runs.store.put_weights(stored_weights("a", "w"));
    runs.store.put_weights(stored_weights("a", "x"));
    runs.store.remove_weights("runs/a/weights/w");
    EXPECT_EQ(names(runs.store, "a"), (StateNames{"three", "four", "two"}));
  }
  // The first replays what was appended, the second the snapshot that the first begins with.
  for (int start = 0; start < 2; ++start) {
    OpenRuns runs(journal());
    EXPECT_EQ(names(runs.store, "a"), (StateNames{"three", "four", "two"}));
    EXPECT_EQ(runs.store.find_state("runs/a/states/three")->damage().message(), "torn");
    EXPECT_EQ(runs.store.find_state("runs/a/states/two")->seq(), 5);
    EXPECT_EQ(runs.store.newest_readable_state("a")->name(), "runs/a/states/two");
    EXPECT_EQ(names(runs.store, "b"), StateNames{"other"});
    const auto all = runs.store.all();
    ASSERT_EQ(all.at("a").run().weights_size(), 1);
    EXPECT_EQ(all.at("a").run().weights(0).name(), "runs/a/weights/x");
    EXPECT_EQ(all.at("a").token_digest(), "digest");
    EXPECT_EQ(all.at("a").run().saved_size(), 0) << "they are asked for by themselves";
  }
}

TEST_F(RunStoreTest, ARunIsRemovedWithAllThatItHasSaved) {
  {
    OpenRuns runs(journal());
    runs.store.put(stored_run("a"));
    runs.store.put_state(stored_state("a", "one", 1));
    runs.store.put_weights(stored_weights("a", "w"));
    runs.store.remove("a");
    EXPECT_EQ(runs.store.count_states("a"), 0);
    runs.store.put(stored_run("a"));
    EXPECT_EQ(runs.store.count_states("a"), 0) << "another run of its name has none of it";
  }
  OpenRuns runs(journal());
  EXPECT_EQ(runs.store.count_states("a"), 0);
  EXPECT_EQ(runs.store.all().at("a").run().weights_size(), 0);
}

TEST_F(RunStoreTest, ASaveWritesTheSameWhateverThereWasBefore) {
  OpenRuns runs(journal());
  runs.store.put(stored_run("a"));
  const auto cost = [&](const std::function<void()>& change) {
    const std::uintmax_t before = size();
    change();
    return size() - before;
  };
  const auto save = [&](int i) {
    runs.store.put_state(stored_state("a", fmt::format("s{:04}", i), 1000 + i, 100));
  };
  const std::uintmax_t first = cost([&] { save(0); });
  const std::uintmax_t run = cost([&] { runs.store.put_kept(stored_run("a")); });
  for (int i = 1; i < 1000; ++i) save(i);
  EXPECT_EQ(cost([&] { save(1000); }), first);
  EXPECT_EQ(cost([&] { runs.store.put_kept(stored_run("a")); }), run);
  EXPECT_EQ(cost([&] { runs.store.put_weights(stored_weights("a", "w")); }),
            cost([&] { runs.store.put_weights(stored_weights("a", "x")); }));
  EXPECT_LT(first, 400u);
  EXPECT_EQ(runs.store.count_states("a"), 1001);
}

TEST_F(RunStoreTest, AStateThatADiskRefusesIsNotThere) {
  OpenRuns runs(journal());
  runs.store.put(stored_run("a"));
  runs.store.put_state(stored_state("a", "one", 1));
  {
    const test::FileSizeLimit full(size() + 1);
    EXPECT_THROW(runs.store.put_state(stored_state("a", "one", 2)), Error);
    EXPECT_THROW(runs.store.put_weights(stored_weights("a", "w")), Error);
    EXPECT_EQ(runs.store.find_state("runs/a/states/one")->seq(), 1);
    EXPECT_EQ(runs.store.all().at("a").run().weights_size(), 0);
  }
  runs.store.put_state(stored_state("a", "one", 2));
  EXPECT_EQ(runs.store.find_state("runs/a/states/one")->seq(), 2);
}

TEST_F(RunStoreTest, RecordsThatAreReadTwiceSayTheSame) {
  v1::JournalRecord run, one, two, damaged, gone, weights;
  *run.mutable_run() = stored_run("a");
  run.set_without_parts(true);
  *one.mutable_saved_state() = stored_state("a", "one", 1);
  *two.mutable_saved_state() = stored_state("a", "two", 2);
  damaged = one;
  damaged.mutable_saved_state()->mutable_damage()->set_message("torn");
  gone.set_deleted_state("runs/a/states/three");
  *weights.mutable_saved_weights() = stored_weights("a", "w");
  // As where a snapshot was taken while records waited that it has already.
  write_journal(journal(), {run, one, two, damaged, weights, run, damaged, weights, gone}, 4);
  OpenRuns runs(journal());
  EXPECT_EQ(names(runs.store, "a"), (StateNames{"one", "two"}));
  EXPECT_TRUE(runs.store.find_state("runs/a/states/one")->has_damage());
  EXPECT_EQ(runs.store.all().at("a").run().weights_size(), 1);
}

TEST_F(RunStoreTest, ARecordOfVersion3HasAllOfARun) {
  v1::JournalRecord two, one;
  *two.mutable_run() = stored_run("a");
  *two.mutable_run()->mutable_run()->add_saved() = stored_state("a", "first", 1, 100);
  *two.mutable_run()->mutable_run()->add_saved() = stored_state("a", "second", 2, 100);
  *two.mutable_run()->mutable_run()->add_weights() = stored_weights("a", "w");
  one = two;
  one.mutable_run()->mutable_run()->mutable_saved()->DeleteSubrange(0, 1);
  one.mutable_run()->mutable_run()->clear_weights();
  write_journal(journal(), {two, one}, 3);
  {
    OpenRuns runs(journal());
    EXPECT_EQ(names(runs.store, "a"), StateNames{"second"});
    EXPECT_EQ(runs.store.all().at("a").run().weights_size(), 0);
    EXPECT_EQ(runs.store.find_state("runs/a/states/second")->user_metadata().at("of").size(), 100u);
    runs.store.put_kept(stored_run("a"));
    runs.store.put_state(stored_state("a", "third", 3));
  }
  for (const v1::JournalRecord& record : read_journal(journal()))
    EXPECT_EQ(record.run().run().saved_size(), 0) << "it was written anew";
  OpenRuns runs(journal());
  EXPECT_EQ(names(runs.store, "a"), (StateNames{"second", "third"}));
}

TEST_F(RunStoreTest, WhatARunSavesIsLimitedInBytes) {
  const RunStore::Limits limits{10'000, 15'000, 2000};
  OpenRuns runs(journal(), limits);
  for (const char* id : {"a", "b"}) runs.store.put(stored_run(id));
  const auto full = [&](const std::string& name, std::size_t bytes) {
    return refusal([&] { runs.store.check_state_room(name, bytes); }, "limit");
  };
  EXPECT_EQ(full("runs/a/states/x", 10'000), "taken");
  EXPECT_EQ(full("runs/a/states/x", 10'001), "STATES_FULL 10000");
  runs.store.put_state(stored_state("a", "x", 1, 8000));
  const std::size_t taken = runs.store.find_state("runs/a/states/x")->ByteSizeLong();
  EXPECT_EQ(full("runs/a/states/y", 10'000 - taken), "taken");
  EXPECT_EQ(
      refusal([&] { runs.store.check_state_room("runs/a/states/y", 10'001 - taken); }, "bytes"),
      "STATES_FULL 10001");
  EXPECT_EQ(full("runs/a/states/x", 10'000), "taken") << "it takes the place of the one there is";
  EXPECT_EQ(full("runs/b/states/x", 15'000 - taken), "taken");
  EXPECT_EQ(full("runs/b/states/x", 15'001 - taken), "STATES_FULL 15000") << "of all runs";
  runs.store.remove_state("runs/a/states/x");
  EXPECT_EQ(full("runs/a/states/y", 10'000), "taken");
  int weights = 0;
  while (refusal([&] { runs.store.check_weights_room("a"); }, "limit") == "taken")
    runs.store.put_weights(stored_weights("a", fmt::format("w{}", weights++)));
  EXPECT_EQ(refusal([&] { runs.store.check_weights_room("a"); }, "limit"), "WEIGHTS_FULL 2000");
  EXPECT_GT(weights, 20);
  runs.store.check_weights_room("b");
}

TEST_F(RunStoreTest, TheNewestStatesAreToldAsFarAsThereIsRoom) {
  OpenRuns runs(journal());
  runs.store.put(stored_run("a"));
  for (int i = 0; i < 100; ++i)
    runs.store.put_state(stored_state("a", fmt::format("s{:02}", i), 10 + i, 1000));
  const auto tell = [&](const RunStore::StateRoom& room) {
    v1::Run run = stored_run("a").run();
    runs.store.tell_states(room, &run);
    return run;
  };
  const v1::Run whole = tell({1 << 20, 1 << 20});
  ASSERT_EQ(whole.saved_size(), 100);
  EXPECT_EQ(whole.saved(0).name(), "runs/a/states/s00");
  EXPECT_EQ(whole.saved(0).user_metadata().size(), 1u);
  const v1::Run some = tell({52'000, 50'000});
  EXPECT_LE(some.ByteSizeLong(), 53'000u);
  EXPECT_EQ(some.saved_count(), 100);
  EXPECT_GT(some.saved_size(), 60) << "those without metadata take less";
  EXPECT_LT(some.saved_size(), 100);
  EXPECT_EQ(some.saved().rbegin()->name(), "runs/a/states/s99");
  EXPECT_EQ(some.saved().rbegin()->user_metadata().size(), 1u);
  EXPECT_EQ(some.saved(0).user_metadata().size(), 0u);
  EXPECT_EQ(tell({1 << 20, 0}).saved(99).user_metadata().size(), 0u);
  EXPECT_EQ(tell({0, 0}).saved_count(), 100);
}

}  // namespace
}  // namespace meshloom::control
