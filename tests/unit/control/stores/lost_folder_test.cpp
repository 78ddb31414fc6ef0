// SPDX-License-Identifier: Apache-2.0
// What the journal knows nothing of is kept, and found again once its journal is back.
#include "daemon/control/stores/lost_folder.h"

#include <gmock/gmock.h>
#include <unistd.h>

#include "daemon/control/stores/journal.h"
#include "tests/unit/control/stores/transfer_fixture.h"

namespace meshloom::control {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
namespace fs = std::filesystem;

class LostFolderTest : public TransferTest {
 protected:
  fs::path journal() const { return state() / "journal"; }
  void close() { stores_.reset(); }
  std::vector<LostFolder::Held> lost() const { return LostFolder(state()).list(); }
  std::int64_t lost_bytes() const {
    std::int64_t bytes = 0;
    for (const LostFolder::Held& held : lost()) bytes += held.bytes;
    return bytes;
  }
  /// An upload, a model, a job with a file and a run with one; returns the upload's id.
  std::string fill(unsigned seed) {
    const std::string id = send("a.bin", random_bytes(1000, seed));
    v1::CreateModelRequest model;
    model.set_name("mine");
    model.set_preset("byte_gpt_tiny");
    models().create("me", model, {});
    v1::JobSpec spec;
    spec.set_name("one");
    stores_->jobs.submit(spec, {}, {});
    folder_.write(state_name_ + "/jobs/one/metrics.jsonl", fmt::format("{}", seed));
    v1::RunRecord run;
    run.mutable_run()->set_name("runs/r");
    stores_->runs.put(run);
    fs::create_directories(state() / "runs/r/states/s");
    folder_.write(state_name_ + "/runs/r/states/s/weights", fmt::format("{}", seed));
    return id;
  }
  void expect_filled(const std::string& upload, unsigned seed) {
    EXPECT_EQ(file_text(uploads().content("me", upload).path), random_bytes(1000, seed));
    EXPECT_TRUE(fs::exists(models().folder("mine") / "config.json"));
    EXPECT_EQ(stores_->jobs.get("one").name(), "jobs/one");
    EXPECT_EQ(file_text(state() / "jobs/one/metrics.jsonl"), fmt::format("{}", seed));
    EXPECT_EQ(stores_->runs.all().count("r"), 1u);
    EXPECT_EQ(file_text(state() / "runs/r/states/s/weights"), fmt::format("{}", seed));
  }
  /// As a daemon without journal ids has left it.
  void forget_ids() const {
    fs::remove(state() / "journal-id");
    const fs::path old = folder_ / "old-journal";
    fs::rename(journal(), old);
    Journal next(journal(), [](std::string_view) {});
    const std::function<void(const v1::JournalRecord&)> copy = [&](const v1::JournalRecord& from) {
      for (const v1::JournalRecord& item : from.group()) copy(item);
      v1::JournalRecord record = from;
      record.clear_group();
      record.clear_journal_id();
      next.append(record.SerializeAsString());
    };
    const Journal read(old, [&](std::string_view payload) {
      v1::JournalRecord record;
      ASSERT_TRUE(record.ParseFromString(std::string(payload)));
      copy(record);
    });
    fs::remove(old);
  }
};

TEST_F(LostFolderTest, ANewJournalKeepsWhatTheOldOneKnewAndThatOneFindsItAgain) {
  open();
  const std::string first = fill(1);
  close();
  EXPECT_THAT(lost(), IsEmpty());
  fs::rename(journal(), folder_ / "first");
  open();
  EXPECT_EQ(reason_of([&] { uploads().get("me", first); }), "UPLOAD_NOT_FOUND");
  EXPECT_FALSE(fs::exists(state() / "jobs/one")) << "the name is free";
  ASSERT_EQ(lost().size(), 1u);
  EXPECT_GE(lost()[0].files, 4) << "blob, config, metrics, state";
  EXPECT_GE(lost()[0].bytes, 1000);
  const std::string second = fill(2);
  close();
  open();
  expect_filled(second, 2);
  EXPECT_EQ(lost().size(), 1u) << "no start touches it";
  close();
  fs::rename(journal(), folder_ / "second");
  fs::rename(folder_ / "first", journal());
  open();
  expect_filled(first, 1);
  close();
  ASSERT_EQ(lost().size(), 1u) << "what the second one knew";
  fs::rename(folder_ / "second", journal());
  open();
  expect_filled(second, 2);
  EXPECT_GE(lost_bytes(), 1000);
}

TEST_F(LostFolderTest, ABrokenJournalChangesNothing) {
  open();
  const std::string id = fill(1);
  close();
  fs::rename(journal(), folder_ / "whole");
  folder_.write(state_name_ + "/journal", "");
  try {
    open();
    FAIL() << "an empty file is no journal";
  } catch (const Error& error) {
    EXPECT_EQ(error.reason(), "JOURNAL_CORRUPT");
    EXPECT_THAT(error.what(), HasSubstr((state() / "lost").string()));
  }
  EXPECT_THAT(lost(), IsEmpty());
  fs::rename(folder_ / "whole", journal());
  open();
  expect_filled(id, 1);
}

TEST_F(LostFolderTest, AJournalThatEndedBeforeItsFirstRecordIsNew) {
  open();
  const std::string id = fill(1);
  close();
  fs::rename(journal(), folder_ / "whole");
  {
    const Journal header_alone(journal(), [](std::string_view) {});
  }
  open();
  EXPECT_EQ(lost().size(), 1u);
  close();
  fs::rename(folder_ / "whole", journal());
  open();
  expect_filled(id, 1);
  EXPECT_THAT(lost(), IsEmpty());
}

TEST_F(LostFolderTest, AJournalOfAnotherStateDirTakesNothingOfThisOne) {
  open();
  const std::string other = fill(2);
  close();
  fs::rename(journal(), folder_ / "other");
  state_name_ = "state2";
  fs::create_directories(state());
  open();
  const std::string own = fill(1);
  close();
  fs::rename(journal(), folder_ / "own");
  fs::copy_file(folder_ / "other", journal());
  open();
  EXPECT_EQ(reason_of([&] { uploads().get("me", other); }), "UPLOAD_NOT_FOUND");
  EXPECT_FALSE(fs::exists(state() / "jobs/one/metrics.jsonl")) << "that is another job";
  close();
  fs::rename(folder_ / "own", journal());
  open();
  expect_filled(own, 1);
}

TEST_F(LostFolderTest, AJournalFromBeforeThereWereIdsFindsItsOwnToo) {
  open();
  const std::string first = fill(1);
  close();
  forget_ids();
  fs::copy_file(journal(), folder_ / "first");
  open();
  expect_filled(first, 1);
  EXPECT_THAT(lost(), IsEmpty()) << "it is taken for the one of this state dir";
  close();
  fs::copy_file(folder_ / "first", journal(), fs::copy_options::overwrite_existing);
  open();
  expect_filled(first, 1);
  EXPECT_THAT(lost(), IsEmpty()) << "a copy that was restored";
  close();
  forget_ids();
  fs::rename(journal(), folder_ / "last");
  open();
  const std::string second = fill(2);
  close();
  EXPECT_EQ(lost().size(), 1u);
  fs::rename(folder_ / "last", journal());
  open();
  expect_filled(first, 1);
  EXPECT_GE(lost_bytes(), 1000) << "what the journal between had";
}

TEST_F(LostFolderTest, WhatIsUnknownIsKeptButNotWhatARecordHasRemoved) {
  open();
  const std::string id = fill(1);
  const std::string half = create("half.bin", random_bytes(3000, 4));
  append(*uploads().open_writer("me", half), random_bytes(3000, 4).substr(0, 2000));
  const std::string gone = create("gone.bin", random_bytes(3000, 5));
  append(*uploads().open_writer("me", gone), random_bytes(3000, 5).substr(0, 2000));
  const std::string blob = sha256_of(random_bytes(1000, 1));
  const auto at = [&](const std::string& name) { return state() / name; };
  fs::copy_file(at("blobs/incoming/" + gone), folder_ / "gone");
  uploads().abort("me", gone, {});
  close();
  // A daemon that died at the wrong moment: behind the record of a removal, and before that of an
  // upload that is complete or new.
  fs::rename(folder_ / "gone", at("blobs/incoming/" + gone));
  fs::create_hard_link(at("blobs/incoming/" + half), at("blobs/" + std::string(64, 'a')));
  fs::create_hard_link(at("blobs/" + blob), at("blobs/incoming/" + id));
  folder_.write(state_name_ + "/blobs/incoming/99", "");
  fs::resize_file(at("blobs/incoming/99"), 1 << 20);
  fs::create_directories(at("jobs/empty/checkpoints"));
  // What nobody knows of.
  folder_.write(state_name_ + "/blobs/" + std::string(64, 'b'), "bytes");
  fs::create_directories(at("models/other"));
  folder_.write(state_name_ + "/models/other/model.safetensors", "weights");
  fs::create_directories(at("jobs/other"));
  folder_.write(state_name_ + "/jobs/other/metrics.jsonl", "{}");
  open();
  expect_filled(id, 1);
  ASSERT_EQ(lost().size(), 1u);
  EXPECT_EQ(lost()[0].files, 3);
  EXPECT_EQ(lost()[0].bytes, 5 + 7 + 2);
  EXPECT_EQ(file_text(at(lost()[0].folder) / "blobs" / std::string(64, 'b')), "bytes");
  EXPECT_EQ(file_text(at(lost()[0].folder) / "models/other/model.safetensors"), "weights");
  for (const std::string& name :
       {"blobs/incoming/" + gone, "blobs/incoming/" + id, std::string("blobs/incoming/99"),
        "blobs/" + std::string(64, 'a'), std::string("jobs/empty"), std::string("jobs/other")})
    EXPECT_FALSE(fs::exists(at(name))) << name;
  append(*uploads().open_writer("me", half), random_bytes(3000, 4).substr(2000));
  uploads().finish("me", half);
  close();
  folder_.write(state_name_ + "/blobs/" + std::string(64, 'b'), "others");
  open();
  EXPECT_EQ(lost().size(), 2u) << "nothing there is replaced";
  EXPECT_EQ(lost_bytes(), 5 + 7 + 2 + 6);
}

TEST_F(LostFolderTest, WhatSomebodyPutsThereStays) {
  open();
  fill(1);
  close();
  fs::rename(journal(), folder_ / "whole");
  open();
  close();
  const fs::path set = state() / lost().at(0).folder;
  folder_.write(fs::relative(set, folder_.path()).string() + "/note.txt", "of a person");
  fs::rename(folder_ / "whole", journal());
  open();
  EXPECT_EQ(file_text(set / "note.txt"), "of a person");
  EXPECT_EQ(lost().at(0).files, 1);
}

}  // namespace
}  // namespace meshloom::control
