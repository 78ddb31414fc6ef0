// SPDX-License-Identifier: Apache-2.0
// JobStore: pause, resume, order, labels and edits, and what of them survives a restart.
#include <fstream>
#include <random>
#include <sstream>

#include "daemon/control/stores/job_log.h"
#include "tests/support/reason_of.h"
#include "tests/unit/control/stores/job_store_fixture.h"

namespace meshloom::control {
namespace {

using test::reason_of;

class JobStoreChangesTest : public JobStoreTest {
 protected:
  static v1::JobSpec with_steps(const v1::Job& job, std::int64_t steps) {
    v1::JobSpec spec = job.spec();
    *spec.mutable_run() = job.resolved();
    spec.mutable_run()->mutable_training()->set_steps(steps);
    return spec;
  }
  static v1::Job edit_steps(JobStore& store, const std::string& id, std::int64_t steps,
                            const RequestKey& key = {}) {
    const v1::Job job = store.get(id);
    return store.edit(id, with_steps(job, job.resolved().training().steps()),
                      with_steps(job, steps), key);
  }
  static v1::RunConfig store_config(std::int64_t steps) { return spec("", steps).run(); }
  static std::vector<std::string> order(JobStore& store) {
    std::vector<std::string> ids;
    while (const auto next = store.next_job()) {
      ids.push_back(*next);
      store.pause(*next, v1::PAUSE_CODE_CLIENT, {});
    }
    return ids;
  }
};

TEST_F(JobStoreChangesTest, PauseAndResumeAreKeptAndResumedOnesComeFirst) {
  auto store = open();
  for (const char* id : {"a", "b", "c"}) submit(*store, id);
  EXPECT_EQ(store->pause("a", v1::PAUSE_CODE_CLIENT, {}).state(), v1::JOB_STATE_PAUSED);
  EXPECT_EQ(store->pause("a", v1::PAUSE_CODE_CLIENT, {}).state(), v1::JOB_STATE_PAUSED);
  EXPECT_EQ(store->next_job(), "b");
  EXPECT_EQ(reason_of([&] { store->resume("b", {}); }), "JOB_NOT_PAUSED");
  store = open();
  EXPECT_EQ(store->get("a").state(), v1::JOB_STATE_PAUSED);
  EXPECT_EQ(store->get("a").pause_code(), v1::PAUSE_CODE_CLIENT);
  EXPECT_EQ(store->next_job(), "b");
  store->pause("c", v1::PAUSE_CODE_CLIENT, {});
  EXPECT_EQ(store->resume("c", {}).state(), v1::JOB_STATE_QUEUED);
  EXPECT_EQ(store->next_job(), "c");
  store = open();
  EXPECT_EQ(store->next_job(), "c");
  EXPECT_EQ(reason_of([&] { store->release("a", {}); }), "JOB_NOT_HELD");
  EXPECT_EQ(store->cancel("a", {}).state(), v1::JOB_STATE_CANCELLED);
  EXPECT_EQ(reason_of([&] { store->pause("a", v1::PAUSE_CODE_CLIENT, {}); }), "JOB_FINISHED");
}

TEST_F(JobStoreChangesTest, AJobThatRunsIsPausingUntilItIsSaved) {
  auto store = open();
  submit(*store, "a");
  submit(*store, "b");
  store->begin_attempt("a");
  EXPECT_EQ(store->pause("a", v1::PAUSE_CODE_CLIENT, {}).state(), v1::JOB_STATE_PAUSING);
  EXPECT_TRUE(store->pause_requested("a"));
  EXPECT_EQ(reason_of([&] { store->resume("a", {}); }), "JOB_NOT_PAUSED");
  move(*store, "a", v1::JOB_STATE_RUNNING);
  EXPECT_EQ(store->get("a").state(), v1::JOB_STATE_PAUSING) << "a pause that came meanwhile stays";
  store->pause_failed("a", "the disk is full");
  EXPECT_EQ(store->get("a").state(), v1::JOB_STATE_RUNNING);
  store->pause("a", v1::PAUSE_CODE_CLIENT, {});
  store->checkpoint_saved("a", 4, 1.5);
  move(*store, "a", v1::JOB_STATE_PAUSED);
  EXPECT_EQ(store->next_job(), "b");
  store->resume("a", {});
  EXPECT_EQ(store->next_job(), "a");
  EXPECT_EQ(store->begin_attempt("a").attempt(), 2);
  store->pause("a", v1::PAUSE_CODE_CLIENT, {});
  store = open();  // as after a kill
  const v1::Job job = store->get("a");
  EXPECT_EQ(job.state(), v1::JOB_STATE_PAUSED);
  EXPECT_EQ(job.step(), 4);
  EXPECT_DOUBLE_EQ(job.ran_seconds(), 1.5);
}

TEST_F(JobStoreChangesTest, WhatADrainHasPausedGoesOnWhenItEnds) {
  auto store = open();
  for (const char* id : {"a", "b", "c"}) submit(*store, id);
  store->begin_attempt("a");
  store->pause("a", v1::PAUSE_CODE_DRAIN, {});
  EXPECT_EQ(store->end_drain(), std::vector<std::string>{"a"}) << "before it was saved";
  move(*store, "a", v1::JOB_STATE_PAUSED);
  EXPECT_EQ(store->get("a").state(), v1::JOB_STATE_QUEUED);
  EXPECT_EQ(store->next_job(), "a");

  store->begin_attempt("a");
  store->pause("a", v1::PAUSE_CODE_DRAIN, {});
  move(*store, "a", v1::JOB_STATE_PAUSED);
  store->pause("b", v1::PAUSE_CODE_DRAIN, {});
  store->pause("b", v1::PAUSE_CODE_CLIENT, {});
  store = open();
  EXPECT_EQ(store->next_job(), "c");
  EXPECT_EQ(store->end_drain(), std::vector<std::string>{"a"});
  EXPECT_EQ(store->next_job(), "a");
  EXPECT_EQ(store->get("b").state(), v1::JOB_STATE_PAUSED) << "a client's pause outlasts a drain";
}

TEST_F(JobStoreChangesTest, TheOrderOfTheQueueIsThatOfAList) {
  auto store = open();
  std::vector<std::string> list;
  for (int i = 0; i < 6; ++i) {
    list.push_back("j" + std::to_string(i));
    submit(*store, list.back());
  }
  std::mt19937 random(7);
  for (int move = 0; move < 400; ++move) {
    const std::string id = "j" + std::to_string(random() % 6);
    const std::string other = "j" + std::to_string(random() % 6);
    const int place = static_cast<int>(random() % 3);
    if (id == other) continue;
    std::erase(list, id);
    const auto at = std::find(list.begin(), list.end(), other);
    list.insert(place == 0 ? list.begin() : place == 1 ? at : at + 1, id);
    store->move(id, static_cast<JobStore::Place>(place), other, {});
    EXPECT_EQ(store->next_job(), list.front());
    if (move % 100 == 99) store = open();
  }
  EXPECT_EQ(order(*store), list);
  EXPECT_EQ(reason_of([&] { store->move("j1", JobStore::Place::kFirst, "", {}); }),
            "JOB_NOT_QUEUED");
}

TEST_F(JobStoreChangesTest, PlacesWithoutRoomAreGivenAnew) {
  auto store = open();
  for (const char* id : {"a", "b", "c"}) submit(*store, id);
  // Each time the room between the first and the second is halved.
  for (int i = 0; i < 60; ++i) store->move(i % 2 ? "b" : "c", JobStore::Place::kAfter, "a", {});
  store = open();
  EXPECT_EQ(order(*store), (std::vector<std::string>{"a", "b", "c"}));
}

TEST_F(JobStoreChangesTest, LabelsAreCheckedFilteredAndKept) {
  auto store = open();
  submit(*store, "a");
  submit(*store, "b");
  JobStore::Labels set;
  set["team"] = "x";
  set["stage"] = "1";
  EXPECT_EQ(store->label("a", set, {}, {}).spec().labels().size(), 2u);
  store->label("b", set, {"stage", "nothing"}, {});
  JobStore::Labels stage;
  stage["stage"] = "2";
  store->label("b", stage, {}, {});
  store = open();
  JobStore::Labels wanted;
  wanted["team"] = "x";
  EXPECT_EQ(store->list(0, 10, wanted).first.size(), 2u);
  wanted["stage"] = "2";
  const auto found = store->list(0, 10, wanted).first;
  ASSERT_EQ(found.size(), 1u);
  EXPECT_EQ(found[0].spec().name(), "b");
  for (const char* key : {"", "Team", "-a", "a b"}) {
    JobStore::Labels wrong;
    wrong[key] = "x";
    EXPECT_EQ(reason_of([&] { store->label("a", wrong, {}, {}); }), "INVALID_ARGUMENT") << key;
  }
  JobStore::Labels many;
  for (int i = 0; i < 65; ++i) many["k" + std::to_string(i)] = "v";
  EXPECT_EQ(reason_of([&] { store->label("a", many, {}, {}); }), "INVALID_ARGUMENT");
  EXPECT_EQ(store->get("a").spec().labels().size(), 2u);
}

TEST_F(JobStoreChangesTest, EditsHoldFromAStepOnAndAreKept) {
  auto store = open();
  submit(*store, "a");  // 10 steps
  store->begin_attempt("a");
  move(*store, "a", v1::JOB_STATE_RUNNING);
  for (std::int64_t step = 1; step <= 4; ++step) store->begin_step("a", step);
  const v1::Job edited = edit_steps(*store, "a", 20);
  EXPECT_EQ(edited.steps(), 20);
  EXPECT_EQ(edited.spec().run().training().steps(), 20);
  ASSERT_EQ(edited.edits_size(), 1);
  EXPECT_EQ(edited.edits(0).after_step(), 4);
  EXPECT_EQ(edited.edits(0).before().steps(), 10);
  EXPECT_EQ(reason_of([&] { edit_steps(*store, "a", 4); }), "STEP_PASSED");
  store->begin_step("a", 6);
  edit_steps(*store, "a", 30);
  store->checkpoint_saved("a", 2, 0);
  store = open();
  const v1::Job job = store->get("a");
  ASSERT_EQ(job.edits_size(), 2);
  EXPECT_EQ(job.steps(), 30);
  const std::vector<std::int64_t> expected{10, 10, 10, 10, 20, 20, 30, 30};
  for (std::size_t i = 0; i < expected.size(); ++i)
    EXPECT_EQ(settings_for(job.resolved(), job.edits(), static_cast<std::int64_t>(i) + 1).steps(),
              expected[i])
        << "step " << i + 1;
  // The job begins again at step 2: another edit takes the place of those that are ahead again.
  store->begin_attempt("a");
  store->begin_step("a", 3);
  const v1::Job again = edit_steps(*store, "a", 40);
  ASSERT_EQ(again.edits_size(), 1);
  EXPECT_EQ(again.edits(0).after_step(), 3);
  EXPECT_EQ(again.edits(0).before().steps(), 10);
  v1::JobSpec limited = with_steps(again, 40);
  limited.set_step_limit(9);
  store->edit("a", with_steps(again, 40), limited, {});
  store = open();
  EXPECT_EQ(store->get("a").spec().step_limit(), 9);
  EXPECT_EQ(store->get("a").steps(), 9);
  EXPECT_EQ(settings_for(again.resolved(), again.edits(), 4).steps(), 40);
}

TEST_F(JobStoreChangesTest, EditsAreRefusedWhereTheyCannotHold) {
  auto store = open();
  submit(*store, "a");
  const RequestKey first = key("edit-1", "a");
  edit_steps(*store, "a", 12, first);
  EXPECT_EQ(edit_steps(*store, "a", 12, first).edits_size(), 1) << "a repeat changes nothing";
  const v1::Job job = store->get("a");
  EXPECT_EQ(reason_of([&] { store->edit("a", with_steps(job, 10), with_steps(job, 15), {}); }),
            "EDITED_MEANWHILE");
  store->begin_attempt("a");
  move(*store, "a", v1::JOB_STATE_RUNNING);
  store->begin_step("a", 12);
  EXPECT_EQ(reason_of([&] { edit_steps(*store, "a", 50); }), "STEP_PASSED") << "its last step";
  v1::JobSpec limited = with_steps(store->get("a"), 12);
  limited.set_step_limit(3);
  EXPECT_EQ(reason_of([&] { store->edit("a", with_steps(job, 12), limited, {}); }), "STEP_PASSED");
  store->cancel("a", {});
  EXPECT_EQ(reason_of([&] { edit_steps(*store, "a", 50); }), "JOB_CANCELLING");
  move(*store, "a", v1::JOB_STATE_CANCELLED);
  EXPECT_EQ(reason_of([&] { edit_steps(*store, "a", 50); }), "JOB_FINISHED");
}

TEST(JobSettings, OnlyNamedFieldsThatMayChangeDo) {
  v1::JobSpec job, spec;
  job.mutable_run()->mutable_training()->set_steps(10);
  job.mutable_run()->mutable_training()->set_seed(3);
  spec.mutable_run()->mutable_training()->set_steps(20);
  EXPECT_EQ(edited_spec(job, spec, {"run.training.steps"}).run().training().seed(), 3u);
  EXPECT_EQ(edited_spec(job, spec, {"run.training.steps"}).run().training().steps(), 20);
  const auto refusal = [&](const std::set<std::string>& fields) -> std::string {
    try {
      edited_spec(job, spec, fields);
    } catch (const InvalidArgument& error) {
      return error.reason() + ": " + error.what();
    }
    return "";
  };
  EXPECT_NE(refusal({}).find("is empty"), std::string::npos);
  EXPECT_NE(refusal({"run.training.step"}).find("no field"), std::string::npos);
  EXPECT_NE(refusal({"run.checkpoint.interval"}).find("does not name"), std::string::npos);
  spec.mutable_run()->mutable_training()->set_seed(4);
  const std::string fixed =
      refusal({"run.training.steps", "run.training.seed", "run.model.preset"});
  EXPECT_EQ(fixed.find("FIELD_FIXED: run.model.preset, run.training.seed cannot change"), 0u)
      << fixed;
}

TEST(JobSettings, SectionsComeAndGo) {
  v1::JobSpec job, spec;
  v1::EarlyStoppingConfig& stopping =
      *spec.mutable_run()->mutable_training()->mutable_early_stopping();
  stopping.set_patience(3);
  spec.mutable_run()->mutable_sample()->set_interval(7);
  spec.mutable_run()->mutable_checkpoint()->set_keep_best(2);
  const v1::JobSpec with = edited_spec(
      job, spec,
      {"run.training.early_stopping", "run.sample.interval", "run.checkpoint.keep_best"});
  const v1::RunConfig without;
  for (const v1::RunConfig& from : {with.run(), without})
    for (v1::RunConfig to : {with.run(), without}) {
      apply_settings(settings_of(from), &to);
      EXPECT_EQ(to.training().has_early_stopping(), from.training().has_early_stopping());
      EXPECT_EQ(settings_of(to).SerializeAsString(), settings_of(from).SerializeAsString());
    }
  v1::JobSpec empty;
  empty.mutable_run()->mutable_training()->mutable_early_stopping();
  const v1::JobSpec gone = edited_spec(with, empty, {"run.training.early_stopping"});
  EXPECT_FALSE(gone.run().training().has_early_stopping());
  EXPECT_EQ(gone.run().sample().interval(), 7);
}

TEST(JobSettings, EditsOfADaemonThatKnewFewerLeaveTheRest) {
  v1::RunConfig resolved;
  resolved.mutable_training()->set_steps(10);
  resolved.mutable_training()->mutable_early_stopping()->set_patience(2);
  resolved.mutable_checkpoint()->set_keep_best(3);
  resolved.mutable_sample()->set_interval(4);
  JobEdits edits;
  v1::JobEdit& old = *edits.Add();
  old.set_after_step(5);
  old.mutable_before()->set_steps(10);
  old.mutable_after()->set_steps(20);
  for (const std::int64_t step : {1, 6}) {
    v1::JobSettings expected = settings_of(resolved);
    expected.set_steps(step == 1 ? 10 : 20);
    EXPECT_EQ(settings_for(resolved, edits, step).SerializeAsString(),
              expected.SerializeAsString());
  }
  // An edit of this version behind it is not seen before its step.
  v1::JobEdit edit;
  edit.set_after_step(8);
  *edit.mutable_after() = settings_for(resolved, edits, 9);
  edit.mutable_after()->set_keep_best(1);
  edit.mutable_after()->mutable_early_stopping()->set_patience(0);
  add_edit(resolved, edit, &edits);
  apply_settings(edit.after(), &resolved);
  for (const std::int64_t step : {1, 6, 9}) {
    const v1::JobSettings seen = settings_for(resolved, edits, step);
    EXPECT_EQ(seen.steps(), step == 1 ? 10 : 20);
    EXPECT_EQ(seen.keep_best(), step == 9 ? 1 : 3) << step;
    EXPECT_EQ(seen.early_stopping().patience(), step == 9 ? 0 : 2) << step;
  }
}

TEST_F(JobStoreChangesTest, TheLogOfAJobTellsItsStatesAndNotes) {
  auto store = open();
  submit(*store, "a");
  store->begin_attempt("a");
  move(*store, "a", v1::JOB_STATE_RUNNING);
  store->add_note("a", "two\nlines");
  move(*store, "a", v1::JOB_STATE_SUCCEEDED);
  std::ifstream file(folder_ / "jobs/a" / kJobLog);
  std::vector<std::string> lines;
  for (std::string line; std::getline(file, line);)
    lines.push_back(line.substr(line.find(' ') + 1));
  EXPECT_EQ(lines, (std::vector<std::string>{"preparing at step 0 of 10", "running at step 0 of 10",
                                             "two lines", "succeeded at step 0 of 10"}));
}

TEST_F(JobStoreChangesTest, OneThatIsPausedIsNotReleasedButResumed) {
  auto store = open();
  submit(*store, "a");
  store->pause("a", v1::PAUSE_CODE_CLIENT, {});
  store = open(/*hold=*/true);
  EXPECT_EQ(reason_of([&] { store->release("a", {}); }), "JOB_NOT_HELD");
  EXPECT_EQ(store->get("a").state(), v1::JOB_STATE_PAUSED);
  EXPECT_EQ(store->next_job(), std::nullopt);
  EXPECT_EQ(store->resume("a", {}).state(), v1::JOB_STATE_QUEUED);
  EXPECT_EQ(store->next_job(), "a");
}

TEST_F(JobStoreChangesTest, WhoWasResumedOrMovedIsKnownAfterARestart) {
  auto store = open();
  for (const char* id : {"begun", "fresh", "other"}) submit(*store, id);
  store->begin_attempt("begun");
  move(*store, "begun", v1::JOB_STATE_RUNNING);
  store->pause("begun", v1::PAUSE_CODE_CLIENT, {});
  move(*store, "begun", v1::JOB_STATE_PAUSED);
  store->resume("begun", {});
  store->move("begun", JobStore::Place::kAfter, "other", {});
  EXPECT_FALSE(store->comes_first("begun"));
  store->pause("fresh", v1::PAUSE_CODE_CLIENT, {});
  store->resume("fresh", {});
  EXPECT_TRUE(store->comes_first("fresh"));
  store->label("fresh", JobStore::Labels(), {}, {});
  for (const bool hold : {true, false}) {
    store = open(hold);
    EXPECT_FALSE(store->comes_first("begun")) << "it was moved behind another";
    EXPECT_TRUE(store->comes_first("fresh")) << "it was resumed before its first attempt";
    EXPECT_FALSE(store->comes_first("other"));
  }
  EXPECT_EQ(store->next_job(), "fresh");
  store->begin_attempt("fresh");
  move(*store, "fresh", v1::JOB_STATE_FAILED);
  EXPECT_EQ(store->next_job(), "other");
}

TEST_F(JobStoreChangesTest, WhatNoResumeHoldsSaysSoAndIsReleased) {
  auto store = open();
  for (const char* id : {"begun", "fresh", "later"}) submit(*store, id);
  store->begin_attempt("begun");
  move(*store, "begun", v1::JOB_STATE_RUNNING);
  store = open(/*hold=*/true);
  for (const char* id : {"begun", "fresh"}) {
    const v1::Job held = store->get(id);
    EXPECT_EQ(held.state(), v1::JOB_STATE_HELD);
    EXPECT_EQ(held.hold_code(), v1::HOLD_CODE_NO_RESUME);
    EXPECT_EQ(held.hold_reason(), "NO_RESUME: the daemon was started with --no-resume");
  }
  EXPECT_EQ(store->next_job(), std::nullopt);
  submit(*store, "new");
  EXPECT_EQ(store->next_job(), "new") << "those of this daemon are not held";
  EXPECT_EQ(store->release("begun", {}).state(), v1::JOB_STATE_RECOVERING);
  EXPECT_EQ(store->next_job(), "begun");
  const v1::Job released = store->release("fresh", {});
  EXPECT_EQ(released.state(), v1::JOB_STATE_QUEUED);
  EXPECT_EQ(released.hold_code(), v1::HOLD_CODE_UNSPECIFIED);
  EXPECT_EQ(released.hold_reason(), "");
  store = open();
  EXPECT_EQ(store->get("later").state(), v1::JOB_STATE_QUEUED) << "a start without it";
  EXPECT_EQ(store->get("later").hold_reason(), "");
}

TEST_F(JobStoreChangesTest, EditsKeepTheirNumbersOverRestartsAndCompaction) {
  auto store = open();
  submit(*store, "a");
  const auto numbers = [&] {
    std::vector<std::int64_t> all;
    for (const auto& mark : store->edit_marks("a")) all.push_back(mark.number);
    return all;
  };
  store->begin_attempt("a");
  move(*store, "a", v1::JOB_STATE_RUNNING);
  store->begin_step("a", 2);
  edit_steps(*store, "a", 20);
  store->begin_step("a", 4);
  edit_steps(*store, "a", 30);
  EXPECT_EQ(numbers(), (std::vector<std::int64_t>{1, 2}));
  store = open();
  EXPECT_EQ(numbers(), (std::vector<std::int64_t>{1, 2}));
  // Behind step 0 again: it contains both.
  edit_steps(*store, "a", 40);
  EXPECT_EQ(numbers(), (std::vector<std::int64_t>{3}));
  // A whole job in the journal instead of its edits.
  store->begin_attempt("a");
  store->update("a", [&](v1::Job* job) { *job->mutable_resolved() = store_config(40); });
  store = open();
  EXPECT_EQ(numbers(), (std::vector<std::int64_t>{3}));
  EXPECT_EQ(store->edit_marks("a")[0].after_step, 0);
}

}  // namespace
}  // namespace meshloom::control
