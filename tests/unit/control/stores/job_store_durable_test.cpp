// SPDX-License-Identifier: Apache-2.0
// What the store tells, and what is left of it after a full disk or a restart.
#include <atomic>
#include <utility>

#include "daemon/control/stores/journal.h"
#include "kernels/base/error.h"
#include "tests/support/eventually.h"
#include "tests/support/full_disk.h"
#include "tests/unit/control/stores/job_store_fixture.h"
#include "tests/unit/control/stores/journal_writer.h"
#include "tests/unit/control/waking.h"

namespace meshloom::control {
namespace {

using namespace std::chrono_literals;

class JobStoreDurableTest : public JobStoreTest {
 protected:
  /// Every file is as long as it may be.
  std::unique_ptr<test::FileSizeLimit> full() const {
    return std::make_unique<test::FileSizeLimit>(std::filesystem::file_size(folder_ / "journal") +
                                                 1);
  }
  /// What a daemon that begins with the journal as it is would know.
  std::unique_ptr<OpenJobStore> after_kill() {
    const auto copy = folder_ / fmt::format("copy-{}", ++copies_);
    std::filesystem::copy_file(folder_ / "journal", copy);
    return std::make_unique<OpenJobStore>(copy, options());
  }

  int copies_ = 0;
};

std::vector<std::string> kept_notes(const JobStore& store, const std::string& id) {
  const auto notes = store.get(id).notes();
  return {notes.begin(), notes.end()};
}

std::vector<v1::DrawnSample> drawn_samples(std::int64_t step, std::size_t bytes) {
  std::vector<v1::DrawnSample> samples(2);
  for (v1::DrawnSample& sample : samples) {
    sample.set_step(step);
    sample.set_text(std::string(bytes, 't'));
  }
  return samples;
}

TEST_F(JobStoreDurableTest, NotesAndSamplesAreRecordsOfTheirOwn) {
  const auto journal = folder_ / "journal";
  const auto store = open();
  submit(*store, "a");
  store->begin_attempt("a");
  move(*store, "a", v1::JOB_STATE_RUNNING);
  std::int64_t step = 1000;
  const auto cost = [&](const std::function<void()>& change) {
    store->label("a", {}, {}, {});  // waits for what is before it
    const std::uintmax_t before = std::filesystem::file_size(journal);
    change();
    store->label("a", {}, {}, {});
    return std::filesystem::file_size(journal) - before;
  };
  const auto note = [&] { store->add_note("a", std::string(500, 'n')); };
  const auto save = [&] { store->checkpoint_saved("a", ++step, 1.0); };
  const std::uintmax_t first_note = cost(note), first_save = cost(save);
  store->publish_samples("a", drawn_samples(1, 100'000));
  for (int i = 0; i < 50; ++i) note();
  EXPECT_NEAR(static_cast<double>(cost(note)), static_cast<double>(first_note), 40);
  EXPECT_NEAR(static_cast<double>(cost(save)), static_cast<double>(first_save), 40);
  EXPECT_LT(first_save, 2000u);
  store->publish_samples("a", drawn_samples(2, 1000));
  store->update("a", [](v1::Job* job) { job->set_plan("a plan"); });
  const std::vector<std::string> notes = kept_notes(*store, "a");
  EXPECT_EQ(notes.size(), 52u);
  // The first replays what was appended, the second the snapshot that the first begins with.
  auto next = after_kill();
  std::filesystem::copy_file(folder_ / "copy-1", folder_ / "again");
  const OpenJobStore again(folder_ / "again", options());
  for (const OpenJobStore* known : {static_cast<const OpenJobStore*>(next.get()), &again}) {
    const v1::Job job = known->get("a");
    EXPECT_EQ(kept_notes(*known, "a"), notes);
    ASSERT_EQ(job.samples_size(), 2);
    EXPECT_EQ(job.samples(0).step(), 2);
    EXPECT_EQ(job.samples(1).text().size(), 1000u);
    EXPECT_EQ(job.plan(), "a plan");
  }
}

TEST_F(JobStoreDurableTest, SamplesThatAnUpdateBringsAreKept) {
  const auto store = open();
  submit(*store, "a");
  store->begin_attempt("a");
  move(*store, "a", v1::JOB_STATE_RUNNING);
  store->update("a", [](v1::Job* job) { job->add_samples()->set_text("drawn"); });
  EXPECT_EQ(after_kill()->get("a").samples(0).text(), "drawn");
  store->update("a", [](v1::Job* job) { job->clear_samples(); });
  EXPECT_EQ(after_kill()->get("a").samples_size(), 0);
}

TEST_F(JobStoreDurableTest, AJournalOfVersion3HasNotesAndSamplesInItsStates) {
  v1::JournalRecord whole, state, fewer;
  v1::Job& job = *whole.mutable_job();
  job.set_name("jobs/a");
  *job.mutable_spec() = spec("a");
  *job.mutable_resolved() = spec("a").run();
  job.set_state(v1::JOB_STATE_QUEUED);
  v1::Job& later = *state.mutable_state();
  later.set_name("jobs/a");
  later.mutable_spec()->set_name("a");
  later.set_state(v1::JOB_STATE_RECOVERING);
  later.add_notes("one");
  later.add_notes("two");
  later.add_samples()->set_text("drawn");
  fewer = state;
  fewer.mutable_state()->clear_samples();
  write_journal(folder_ / "journal", {whole, state, fewer}, 3);
  const std::vector<std::string> before{"one", "two"}, after{"one", "two", "three"};
  {
    const auto store = open();
    EXPECT_EQ(kept_notes(*store, "a"), before);
    EXPECT_EQ(store->get("a").samples_size(), 0);
    store->add_note("a", "three");
  }
  EXPECT_EQ(kept_notes(*open(), "a"), after);
}

TEST_F(JobStoreDurableTest, ANoteThatIsReadTwiceIsThereOnce) {
  v1::JournalRecord whole, first, second, unknown;
  *whole.mutable_job()->mutable_spec() = spec("a");
  whole.mutable_job()->set_name("jobs/a");
  whole.mutable_job()->set_state(v1::JOB_STATE_QUEUED);
  whole.mutable_job()->add_notes("in the snapshot");
  first.mutable_job_note()->set_job("jobs/a");
  first.mutable_job_note()->set_note("in the snapshot");
  second = first;
  second.mutable_job_note()->set_number(1);
  second.mutable_job_note()->set_note("behind it");
  unknown.mutable_job_note()->set_job("jobs/removed");
  write_journal(folder_ / "journal", {whole, first, second, unknown}, 4);
  EXPECT_EQ(kept_notes(*open(), "a"), (std::vector<std::string>{"in the snapshot", "behind it"}));
}

TEST_F(JobStoreDurableTest, AJobThatTheJournalCannotTakeHoldsUpNoOther) {
  const auto store = open();
  submit(*store, "a");
  store->begin_attempt("a");
  move(*store, "a", v1::JOB_STATE_RUNNING);
  store->update("a", [](v1::Job* job) { job->set_sample(std::string(17 << 20, 's')); });
  submit(*store, "b");
  ASSERT_EQ(store->ledger().troubles().size(), 1u);
  EXPECT_EQ(store->ledger().troubles()[0].rfind("jobs/a is not written down", 0), 0u);
  try {
    store->pause("a", v1::PAUSE_CODE_CLIENT, {});
    FAIL();
  } catch (const ResourceExhausted& error) {
    EXPECT_EQ(error.reason(), Journal::kRecordTooLarge);
    EXPECT_EQ(error.metadata().at("record"), "jobs/a");
  }
  EXPECT_EQ(after_kill()->get("a").state(), v1::JOB_STATE_RECOVERING);
  store->update("a", [](v1::Job* job) { job->clear_sample(); });
  EXPECT_TRUE(store->ledger().troubles().empty());
  EXPECT_EQ(after_kill()->get("b").state(), v1::JOB_STATE_QUEUED);
}

TEST_F(JobStoreDurableTest, AFinalStateIsToldWhenARestartKnowsIt) {
  const auto store = open();
  submit(*store, "a");
  store->begin_attempt("a");
  move(*store, "a", v1::JOB_STATE_RUNNING);
  const std::int64_t revision = store->get("a").revision();
  std::atomic<int> heard{0};
  const auto subscriber = when_woken([&] { ++heard; });
  const Subscription subscription = store->subscribe("a", subscriber);
  auto limit = full();
  move(*store, "a", v1::JOB_STATE_SUCCEEDED);
  publish_step(*store, "a", 1);
  EXPECT_EQ(store->get("a").state(), v1::JOB_STATE_RUNNING);
  EXPECT_EQ(store->get("a").pending_state(), v1::JOB_STATE_SUCCEEDED);
  EXPECT_EQ(store->list(0, 10).first[0].pending_state(), v1::JOB_STATE_SUCCEEDED);
  EXPECT_EQ(store->get("a").step(), 0) << "what came later is not told first";
  EXPECT_TRUE(store->events_after("a", revision).empty());
  EXPECT_EQ(heard, 0);
  limit.reset();
  ASSERT_TRUE(test::eventually([&] { return store->get("a").state() == v1::JOB_STATE_SUCCEEDED; }));
  EXPECT_EQ(store->get("a").pending_state(), v1::JOB_STATE_UNSPECIFIED);
  EXPECT_TRUE(test::eventually([&] { return store->events_after("a", revision).size() == 2; }))
      << "what came later is told after it";
  EXPECT_EQ(store->get("a").step(), 1);
  EXPECT_TRUE(test::eventually([&] { return heard > 0; }));
  const auto events = store->events_after("a", revision);
  ASSERT_EQ(events.size(), 2u);
  EXPECT_EQ(events[0].job().state(), v1::JOB_STATE_SUCCEEDED);
  EXPECT_EQ(events[0].job().resolved().training().steps(), 10);
  EXPECT_TRUE(events[1].has_step());
  EXPECT_EQ(after_kill()->get("a").state(), v1::JOB_STATE_SUCCEEDED);
}

TEST_F(JobStoreDurableTest, ACancelTakesEffectOnABrokenDiskAndSaysSo) {
  const auto store = open();
  submit(*store, "running");
  submit(*store, "waiting");
  store->begin_attempt("running");
  move(*store, "running", v1::JOB_STATE_RUNNING);
  auto limit = full();
  const v1::Job cancelled = store->cancel("running", {});
  EXPECT_EQ(cancelled.state(), v1::JOB_STATE_RUNNING);
  EXPECT_EQ(cancelled.pending_state(), v1::JOB_STATE_CANCELLING);
  EXPECT_TRUE(store->cancel_requested("running"));
  EXPECT_EQ(store->cancel("running", {}).pending_state(), v1::JOB_STATE_CANCELLING) << "a repeat";
  EXPECT_EQ(store->cancel("waiting", {}).pending_state(), v1::JOB_STATE_CANCELLED);
  EXPECT_EQ(after_kill()->get("waiting").state(), v1::JOB_STATE_QUEUED) << "as was told";
  EXPECT_THROW(submit(*store, "new"), Error);
  EXPECT_THROW(store->get("new"), NotFound);
  limit.reset();
  EXPECT_TRUE(
      test::eventually([&] { return store->get("waiting").state() == v1::JOB_STATE_CANCELLED; }));
  EXPECT_EQ(store->get("running").state(), v1::JOB_STATE_CANCELLING);
  EXPECT_EQ(submit(*store, "new").state(), v1::JOB_STATE_QUEUED);
  EXPECT_EQ(after_kill()->get("running").state(), v1::JOB_STATE_CANCELLED);
}

TEST_F(JobStoreDurableTest, AFullDiskTakesCancelsAndEnds) {
  const test::SmallDisk disk(8);
  if (!disk.mounted()) GTEST_SKIP() << "needs root for a disk of its own";
  {
    OpenJobStore store(disk / "journal", options());
    for (int i = 0; i < 100; ++i) submit(store, fmt::format("job-{}", i));
    store.begin_attempt("job-0");
    disk.fill();
    v1::JobSpec large = spec("");
    large.mutable_run()->mutable_model()->set_preset(std::string(200'000, 'p'));
    int taken = 0;
    const auto fill_up = [&] {
      for (; taken < 20; ++taken) store.submit(large, large.run(), {});
    };
    EXPECT_THROW(fill_up(), ResourceExhausted);
    EXPECT_LT(taken, 10) << "no submit takes what is set aside for others";
    for (int i = 1; i < 100; ++i)
      EXPECT_EQ(store.cancel(fmt::format("job-{}", i), {}).state(), v1::JOB_STATE_CANCELLED);
    move(store, "job-0", v1::JOB_STATE_FAILED);
    EXPECT_EQ(store.get("job-0").state(), v1::JOB_STATE_FAILED);
  }
  const OpenJobStore store(disk / "journal", options());
  EXPECT_EQ(store.get("job-0").state(), v1::JOB_STATE_FAILED);
  EXPECT_EQ(store.get("job-99").state(), v1::JOB_STATE_CANCELLED);
}

TEST_F(JobStoreDurableTest, AnEpochIsGivenOutOnceAlsoWhereTheJournalCannotBeWritten) {
  const auto store = open();
  submit(*store, "a");
  auto limit = full();
  const v1::Job begun = store->begin_attempt("a");
  EXPECT_EQ(begun.epoch(), 1);
  EXPECT_EQ(begun.state(), v1::JOB_STATE_PREPARING);
  const auto killed = after_kill();
  limit.reset();
  EXPECT_EQ(killed->get("a").state(), v1::JOB_STATE_QUEUED);
  EXPECT_GT(killed->begin_attempt("a").epoch(), begun.epoch());
}

TEST_F(JobStoreDurableTest, BeginningWaitsForEpochsThatTheJournalPromises) {
  const auto store = open();
  submit(*store, "a");
  auto limit = full();
  std::set<std::int64_t> epochs;
  std::atomic<bool> stuck{true};
  std::thread driver([&] {
    for (int i = 0; i < 200; ++i) {
      EXPECT_TRUE(epochs.insert(store->begin_attempt("a").epoch()).second);
      move(*store, "a", v1::JOB_STATE_RECOVERING);
    }
    stuck = false;
  });
  const auto promised = [&] { return store->ledger().newest_epoch(); };
  EXPECT_TRUE(test::eventually([&] { return promised() >= 64; }));
  std::this_thread::sleep_for(50ms);
  EXPECT_EQ(promised(), 64) << "the journal has promised no more";
  EXPECT_TRUE(stuck);
  EXPECT_GE(after_kill()->ledger().newest_epoch(), 64);
  limit.reset();
  driver.join();
  EXPECT_EQ(epochs.size(), 200u);
}

TEST_F(JobStoreDurableTest, AFullDiskForDaysDoesNotFillTheMemory) {
  const auto store = open();
  submit(*store, "a");
  store->begin_attempt("a");
  const std::int64_t revision = store->get("a").revision();
  auto limit = full();
  move(*store, "a", v1::JOB_STATE_RUNNING);
  for (int i = 1; i <= 10'000; ++i) publish_step(*store, "a", i);
  limit.reset();
  ASSERT_TRUE(test::eventually([&] { return store->get("a").step() == 10'000; }));
  EXPECT_THROW(store->events_after("a", revision), OutOfRange) << "only the newest 4096 were kept";
  EXPECT_EQ(store->get("a").state(), v1::JOB_STATE_RUNNING);
  EXPECT_EQ(store->events_after("a", store->get("a").revision() - 1).size(), 1u);
}

TEST_F(JobStoreDurableTest, TheJournalIsCompactedWhileJobsRun) {
  const auto is_small = [&] { return std::filesystem::file_size(folder_ / "journal") < 2u << 20; };
  {
    const auto store = open();
    submit(*store, "a", key("id", "a"));
    store->begin_attempt("a");
    move(*store, "a", v1::JOB_STATE_RUNNING);
    for (int i = 0; i < 100; ++i) store->add_note("a", std::string(300, 'n'));
    for (int i = 1; i <= 400; ++i) {
      publish_step(*store, "a", i);
      store->checkpoint_saved("a", i, 0.5);
      store->update("a", [](v1::Job*) {});
    }
    EXPECT_TRUE(test::eventually(is_small)) << "25 MB were appended";
  }
  const auto store = open();
  EXPECT_EQ(store->get("a").step(), 400);
  EXPECT_EQ(store->get("a").notes_size(), 100);
  EXPECT_EQ(store->find_request(key("id", "a"))->name(), "jobs/a");
}

TEST_F(JobStoreDurableTest, ValidationsCostNoJournalAndStayWithTheNextRecord) {
  {
    const auto store = open();
    submit(*store, "a");
    store->begin_attempt("a");
    move(*store, "a", v1::JOB_STATE_RUNNING);
    const auto before = std::filesystem::file_size(folder_ / "journal");
    v1::ValidationMetrics validation;
    for (int i = 1; i <= 100; ++i) {
      validation.set_step(i);
      store->publish_validation("a", validation);
    }
    EXPECT_EQ(std::filesystem::file_size(folder_ / "journal"), before);
    publish_step(*store, "a", 100);
    store->checkpoint_saved("a", 100, 0.5);
  }
  const auto store = open();
  EXPECT_EQ(store->get("a").first_validation().step(), 1);
  EXPECT_EQ(store->get("a").last_validation().step(), 100);
}

TEST_F(JobStoreDurableTest, AJobThatTakesTheDaemonDownIsHeldAndTheQueueGoesOn) {
  {
    const auto store = open();
    submit(*store, "bad");
    submit(*store, "good");
    EXPECT_EQ(store->wait_for_job(), "bad");
    store->begin_attempt("bad");
  }
  for (int attempt = 2; attempt <= 3; ++attempt) {
    const auto store = open();
    EXPECT_EQ(store->wait_for_job(), "good") << "the other is not always first";
    EXPECT_EQ(store->waiting(), (std::vector<std::string>{"good", "bad"})) << "what is told";
    EXPECT_EQ(store->begin_attempt("bad").attempt(), attempt);
  }
  {
    const auto store = open();
    const v1::Job held = store->get("bad");
    EXPECT_EQ(held.state(), v1::JOB_STATE_HELD);
    EXPECT_EQ(held.hold_code(), v1::HOLD_CODE_CRASH_LOOP);
    EXPECT_NE(held.hold_reason().find("CRASH_LOOP"), std::string::npos);
    run_through(*store, "good");
  }
  const auto store = open();
  EXPECT_EQ(store->get("bad").state(), v1::JOB_STATE_HELD) << "a start alone does not release it";
  EXPECT_THROW(store->release("good", {}), FailedPrecondition);
  const v1::Job released = store->release("bad", key("release", "bad"));
  EXPECT_EQ(released.state(), v1::JOB_STATE_RECOVERING);
  EXPECT_EQ(released.hold_code(), v1::HOLD_CODE_UNSPECIFIED);
  EXPECT_EQ(store->release("bad", key("release", "bad")).name(), "jobs/bad");
  EXPECT_EQ(store->wait_for_job(), "bad");
  EXPECT_EQ(store->begin_attempt("bad").stalled_attempts(), 1);
}

TEST_F(JobStoreDurableTest, AStepThatNoAttemptHasDoneMakesAttemptsCountAnew) {
  for (int attempt = 1; attempt <= 10; ++attempt) {
    const auto store = open();
    if (attempt == 1) submit(*store, "a");
    ASSERT_EQ(store->wait_for_job(), "a");
    EXPECT_EQ(store->begin_attempt("a").attempt(), attempt);
    move(*store, "a", v1::JOB_STATE_RUNNING);
    for (int step = 1; step <= attempt; ++step) publish_step(*store, "a", step);
  }
}

TEST_F(JobStoreDurableTest, StepsThatAreDoneAgainDoNotKeepACrashLoopGoing) {
  for (const std::int64_t last : {1, 5, 63, 5000}) {
    const std::string id = fmt::format("to-{}", last);
    int attempts = 0;
    for (; attempts < 10; ++attempts) {
      const auto store = open();
      if (attempts == 0) submit(*store, id);
      if (store->get(id).state() == v1::JOB_STATE_HELD) break;
      store->begin_attempt(id);
      move(*store, id, v1::JOB_STATE_RUNNING);
      for (std::int64_t step = 1; step <= last; ++step) publish_step(*store, id, step);
    }
    EXPECT_EQ(attempts, 4) << "the first of " << last << " steps, and three that came no further";
  }
}

TEST_F(JobStoreDurableTest, ANewerCheckpointMakesAttemptsCountAnewAndAnOlderOneDoesNot) {
  const auto attempt = [&](std::int64_t checkpoint) {
    const auto store = open();
    store->begin_attempt("a");
    move(*store, "a", v1::JOB_STATE_RUNNING);
    publish_step(*store, "a", 8);
    store->checkpoint_saved("a", checkpoint, 0.5);
    store->update("a", [](v1::Job*) {});  // all before it is told, too
    return store->get("a").stalled_attempts();
  };
  submit(*open(), "a");
  EXPECT_EQ(attempt(4), 0);
  EXPECT_EQ(attempt(8), 0) << "of a step that had been done";
  EXPECT_EQ(attempt(8), 1);
  EXPECT_EQ(attempt(4), 2);
}

TEST_F(JobStoreDurableTest, ThePromiseOfStepsIsKeptOverACompaction) {
  {
    const auto store = open();
    submit(*store, "a");
    store->begin_attempt("a");
    move(*store, "a", v1::JOB_STATE_RUNNING);
    publish_step(*store, "a", 40);
    std::uintmax_t last = 0;
    const auto shrinks = [&] {
      store->update("a", [](v1::Job* job) { job->set_plan(std::string(100'000, 'p')); });
      const auto before = std::exchange(last, std::filesystem::file_size(folder_ / "journal"));
      return last < before;
    };
    ASSERT_TRUE(test::eventually(shrinks));
  }
  for (int attempt = 2; attempt <= 4; ++attempt) {
    const auto store = open();
    EXPECT_EQ(store->begin_attempt("a").stalled_attempts(), attempt - 1);
    move(*store, "a", v1::JOB_STATE_RUNNING);
    publish_step(*store, "a", 40);
  }
  EXPECT_EQ(open()->get("a").state(), v1::JOB_STATE_HELD);
}

TEST_F(JobStoreDurableTest, ARecordWithoutAPromiseOfStepsHasThatOfItsStep) {
  {
    const auto store = open();
    submit(*store, "a");
    store->begin_attempt("a");
    move(*store, "a", v1::JOB_STATE_RUNNING);
    publish_step(*store, "a", 5);
  }
  // As an older daemon has left it.
  {
    v1::JournalRecord record;
    const auto take = [&](const v1::JournalRecord& item) {
      if (item.has_state()) *record.mutable_state() = item.state();
    };
    Journal journal(folder_ / "journal", [&](std::string_view payload) {
      v1::JournalRecord item;
      ASSERT_TRUE(item.ParseFromArray(payload.data(), static_cast<int>(payload.size())));
      take(item);
      for (const v1::JournalRecord& part : item.group()) take(part);
    });
    ASSERT_EQ(record.state().step(), 5);
    ASSERT_EQ(record.state().stalled_attempts(), 0);
    journal.append(record.SerializeAsString());
  }
  const auto store = open();
  store->begin_attempt("a");
  move(*store, "a", v1::JOB_STATE_RUNNING);
  publish_step(*store, "a", 5);
  EXPECT_EQ(store->get("a").stalled_attempts(), 1);
  publish_step(*store, "a", 6);
  EXPECT_TRUE(test::eventually([&] { return store->get("a").stalled_attempts() == 0; }));
}

TEST(SummaryOf, KeepsEveryFieldThatIsNotLarge) {
  v1::Job job;
  const auto* reflection = job.GetReflection();
  const auto* descriptor = job.GetDescriptor();
  using Field = google::protobuf::FieldDescriptor;
  for (int i = 0; i < descriptor->field_count(); ++i) {
    const Field* field = descriptor->field(i);
    if (field->is_repeated() && field->cpp_type() == Field::CPPTYPE_MESSAGE)
      reflection->AddMessage(&job, field);
    else if (field->is_repeated())
      reflection->AddString(&job, field, "x");
    else if (field->cpp_type() == Field::CPPTYPE_MESSAGE)
      reflection->MutableMessage(&job, field);
    else if (field->cpp_type() == Field::CPPTYPE_STRING)
      reflection->SetString(&job, field, "x");
    else if (field->cpp_type() == Field::CPPTYPE_INT64)
      reflection->SetInt64(&job, field, 1);
    else if (field->cpp_type() == Field::CPPTYPE_DOUBLE)
      reflection->SetDouble(&job, field, 1.5);
    else if (field->cpp_type() == Field::CPPTYPE_ENUM)
      reflection->SetEnumValue(&job, field, 1);
    else
      reflection->SetBool(&job, field, true);
  }
  job.mutable_spec()->set_name("x");
  job.mutable_spec()->mutable_run()->mutable_training()->set_steps(1);
  (*job.mutable_spec()->mutable_labels())["team"] = "x";
  job.mutable_spec()->set_step_limit(2);
  job.mutable_spec()->set_time_limit_seconds(3);
  v1::Job expected = job;
  expected.mutable_spec()->clear_run();
  expected.clear_resolved();
  expected.clear_edits();
  expected.clear_notes();
  expected.clear_sample();
  expected.clear_samples();
  expected.clear_plan();
  EXPECT_EQ(summary_of(job).SerializeAsString(), expected.SerializeAsString());
}

}  // namespace
}  // namespace meshloom::control
