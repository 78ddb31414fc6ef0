// SPDX-License-Identifier: Apache-2.0
#include "daemon/control/runs/run_weights.h"

#include "tests/unit/control/runs/stored_runs.h"

namespace meshloom::control {
namespace {

class RunWeightsTest : public StoredRunTest {
 protected:
  static std::string name(const std::string& weights) { return weights_resource("r", weights); }
  static v1::SavedWeights saved(const std::string& weights, v1::WeightsStorage storage) {
    v1::SavedWeights saved;
    saved.set_name(name(weights));
    saved.set_storage(storage);
    saved.set_step(5);
    if (storage == v1::WEIGHTS_STORAGE_DISK) saved.set_folder(saved_weights_folder("r", weights));
    return saved;
  }
  void keep_in_memory(const std::string& weights) {
    weights_.keep(saved(weights, v1::WEIGHTS_STORAGE_MEMORY),
                  weights_.keep_snapshot(weights, resolved_));
  }
  void keep_on_disk(const std::string& weights) {
    write_files(saved_weights_folder("r", weights));
    weights_.keep(saved(weights, v1::WEIGHTS_STORAGE_DISK), nullptr);
  }

  const v1::RunConfig resolved_;
  const RunClient ranks_{executor_, "r"};
  RunWeights weights_{{admission_, store_, dir_, uses_, ranks_}, "r", {}};
};

TEST_F(RunWeightsTest, ANameIsClaimedByOneUntilItIsLetGoOrUsed) {
  auto claim = weights_.claim(name("a"));
  EXPECT_EQ(reason_of([&] { weights_.claim(name("a")); }), "WEIGHTS_EXIST");
  EXPECT_NO_THROW(weights_.claim(name("b")));
  claim.release();
  claim = weights_.claim(name("a"));
  keep_in_memory("a");
  claim.release();
  EXPECT_EQ(reason_of([&] { weights_.claim(name("a")); }), "WEIGHTS_EXIST");
  weights_.remove(name("a"));
  EXPECT_NO_THROW(weights_.claim(name("a")));
}

TEST_F(RunWeightsTest, EightAreKeptInMemoryWithThoseThatAreDrawnFrom) {
  for (int i = 0; i < 8; ++i) keep_in_memory(std::to_string(i));
  EXPECT_EQ(plan_.snapshots, 8);
  EXPECT_EQ(reason_of([&] { keep_in_memory("8"); }), "TOO_MANY_SNAPSHOTS");
  RunWeights::Drawn drawn = weights_.hold("0", resolved_);
  EXPECT_EQ(drawn.origin.snapshot, "0.1") << "by a key that no other weights have";
  weights_.remove(name("0"));
  EXPECT_EQ(reason_of([&] { keep_in_memory("8"); }), "TOO_MANY_SNAPSHOTS");
  drawn = {};
  keep_in_memory("8");
  EXPECT_EQ(plan_.snapshots, 8);
}

TEST_F(RunWeightsTest, TheSameWeightsOnDiskAreCountedOnceForAllWhoDrawFromThem) {
  keep_on_disk("a");
  RunWeights::Drawn first = weights_.hold("a", resolved_), second = weights_.hold("a", resolved_);
  EXPECT_EQ(first.origin.snapshot, "a");
  EXPECT_EQ(first.origin.weights_step, 5);
  EXPECT_EQ(first.origin.weights_folder, weights_.folder_of("a"));
  EXPECT_EQ(plan_.snapshots, 1);
  first = {};
  EXPECT_EQ(plan_.snapshots, 1);
  second = {};
  EXPECT_EQ(plan_.snapshots, 0);
}

TEST_F(RunWeightsTest, OnDiskTheySurviveTheEpochAndGoWithTheirFiles) {
  keep_on_disk("disk");
  keep_in_memory("memory");
  ASSERT_EQ(weights_.all().size(), 2);
  weights_.drop_snapshots();
  ASSERT_EQ(weights_.all().size(), 1);
  EXPECT_EQ(plan_.snapshots, 0);
  EXPECT_EQ(store_.all().at("r").run().weights_size(), 1);
  weights_.remove(name("disk"));
  EXPECT_FALSE(has_files(saved_weights_folder("r", "disk")));
  EXPECT_EQ(store_.all().at("r").run().weights_size(), 0);
}

TEST_F(RunWeightsTest, WhatIsNotThereIsToldByWhatItIsWantedFor) {
  EXPECT_EQ(reason_of([&] { weights_.find(name("a")); }), "WEIGHTS_NOT_FOUND");
  EXPECT_EQ(reason_of([&] { weights_.remove(name("a")); }), "WEIGHTS_NOT_FOUND");
  EXPECT_EQ(reason_of([&] { weights_.drawn(name("a")); }), "SNAPSHOT_STALE");
  EXPECT_EQ(reason_of([&] { weights_.hold("a", resolved_); }), "SNAPSHOT_STALE");
}

}  // namespace
}  // namespace meshloom::control
