// SPDX-License-Identifier: Apache-2.0
// Who is silent, who is stuck and who never came, in made-up time.
#include "daemon/control/ranks/rank_watch.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>

#include "daemon/control/ranks/command_deadlines.h"
#include "daemon/control/ranks/pulse_sampler.h"
#include "tests/support/temp_folder.h"

namespace meshloom::control {
namespace {

using namespace std::chrono_literals;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr std::chrono::milliseconds kLook{250};

/// The command with number 7 saves a state.
class SlowSave final : public UnansweredCommands {
 public:
  std::optional<CommandInfo> unanswered(std::int64_t seq) const override {
    if (seq != 7) return std::nullopt;
    return CommandInfo{"save_state", 30'000};
  }
};

class RankWatchTest : public ::testing::Test {
 protected:
  /// Looks every quarter of a second, with a sign of life from those that are `alive`; ends with
  /// news or a fatal finding.
  RankWatch::Findings pass(std::chrono::milliseconds time, const std::vector<int>& alive,
                           const v1::Heartbeat& heartbeat = {}) {
    RankWatch::Findings findings;
    for (const auto end = now_ + time; now_ < end;) {
      now_ += kLook;
      for (const int rank : alive) watch_.heard(rank, &heartbeat, now_);
      findings = watch_.look(now_);
      if (!findings.news.empty() || findings.fatal) break;
    }
    return findings;
  }
  void join() {
    for (const int rank : {0, 1}) watch_.joined(rank, fmt::format("rank {}", rank), now_);
  }
  std::chrono::milliseconds passed() const {
    return std::chrono::duration_cast<std::chrono::milliseconds>(now_ - start_);
  }

  const RankWatch::Clock::time_point start_ = RankWatch::Clock::now();
  RankWatch::Clock::time_point now_ = start_;
  const SlowSave commands_;
  RankWatch watch_{2, {.rank_timeout = 10s, .join_timeout = 60s}, &commands_, start_};
};

TEST_F(RankWatchTest, SilenceIsNamedAndThenGivenUp) {
  join();
  EXPECT_THAT(pass(5s, {0, 1}).news, IsEmpty());
  EXPECT_EQ(watch_.condition(1, now_).state, v1::WORKER_STATE_READY);
  const auto frozen = now_;
  const auto named = pass(5s, {0});
  ASSERT_EQ(named.news.size(), 1u);
  EXPECT_EQ(named.news[0],
            "rank 1: nothing was heard of it for 1.5 s: it is frozen or cut off; it is given up "
            "after 10.0 s");
  EXPECT_TRUE(named.in_trouble);
  EXPECT_FALSE(named.fatal);
  EXPECT_EQ(now_ - frozen, 1500ms);
  EXPECT_EQ(watch_.condition(1, now_).state, v1::WORKER_STATE_SILENT);
  EXPECT_THAT(watch_.condition(1, now_).trouble, HasSubstr("frozen or cut off"));
  EXPECT_EQ(watch_.condition(0, now_).state, v1::WORKER_STATE_READY);
  const auto lost = pass(20s, {0});
  ASSERT_TRUE(lost.fatal);
  EXPECT_EQ(now_ - frozen, 10s);
  EXPECT_EQ(lost.fatal->reason(), "RANK_LOST");
  EXPECT_THAT(lost.fatal->what(), HasSubstr("rank 1 is given up"));
}

TEST_F(RankWatchTest, ARankThatWakesIsBack) {
  join();
  ASSERT_EQ(pass(5s, {0}).news.size(), 1u);
  EXPECT_THAT(pass(8s, {0}).news, IsEmpty());
  const auto back = pass(1s, {0, 1});
  ASSERT_EQ(back.news.size(), 1u);
  EXPECT_THAT(back.news[0], HasSubstr("rank 1 is back"));
  EXPECT_FALSE(back.in_trouble);
  EXPECT_FALSE(pass(20s, {0, 1}).fatal);
}

TEST_F(RankWatchTest, TimeInWhichTheWatcherSleptDoesNotCount) {
  join();
  pass(1s, {0, 1});
  now_ += 8h;
  EXPECT_THAT(pass(250ms, {0}).news, IsEmpty());
  // What came in during the sleep does not make up for later silence.
  now_ += 8h;
  watch_.heard(1, nullptr, now_);
  EXPECT_THAT(pass(1250ms, {0}).news, IsEmpty());
  EXPECT_EQ(pass(500ms, {0}).news.size(), 1u);
}

TEST_F(RankWatchTest, ACallOfTheTransportThatLastsIsNamedAndGivenUp) {
  join();
  v1::Heartbeat inside;
  inside.set_seq(7);
  inside.set_transport_ms(1400);
  EXPECT_THAT(pass(1s, {1}, inside).news, IsEmpty());
  inside.set_transport_ms(1900);
  inside.set_last_collective("all_reduce #12 of group 'dp'");
  const auto named = pass(1s, {1}, inside);
  ASSERT_EQ(named.news.size(), 1u);
  EXPECT_THAT(named.news[0],
              HasSubstr("stuck for 1.9 s inside one call of the transport, in save_state (seq 7), "
                        "its last collective is all_reduce #12 of group 'dp'"));
  EXPECT_EQ(watch_.condition(1, now_).state, v1::WORKER_STATE_STUCK);
  inside.set_transport_ms(10'000);
  const auto lost = pass(250ms, {0, 1}, inside);
  ASSERT_TRUE(lost.fatal);
  EXPECT_EQ(lost.fatal->reason(), "RANK_STUCK");
}

TEST_F(RankWatchTest, ACommandWithoutProgressPastItsDeadlineIsFatalAndSaysWhereAllAre) {
  join();
  v1::Heartbeat still;
  still.set_seq(7);
  still.set_still_ms(29'000);
  EXPECT_FALSE(pass(1s, {0, 1}, still).fatal);
  still.set_still_ms(31'000);
  watch_.heard(0, nullptr, now_);
  watch_.heard(1, &still, now_);
  const auto fatal = watch_.look(now_).fatal;
  ASSERT_TRUE(fatal);
  EXPECT_EQ(fatal->reason(), "COMMAND_DEADLINE");
  EXPECT_THAT(fatal->what(),
              HasSubstr("rank 1 is stuck: nothing moved in save_state (seq 7) for 31000 ms, its "
                        "deadline is 30000 ms; rank 0, in save_state (seq 7); rank 1"));
  v1::Heartbeat unknown = still;
  unknown.set_seq(8);
  EXPECT_FALSE(pass(250ms, {0, 1}, unknown).fatal);
}

TEST_F(RankWatchTest, RanksThatNeverJoinAreNamed) {
  watch_.joined(0, "rank 0", now_);
  const auto missing = pass(100s, {0});
  ASSERT_TRUE(missing.fatal);
  EXPECT_EQ(passed(), 60s);
  EXPECT_EQ(missing.fatal->metadata().at("missing_ranks"), "1");
  EXPECT_THAT(missing.fatal->what(), HasSubstr("rank 1 of 2 did not join within 60.0 s"));
}

TEST_F(RankWatchTest, RanksThatLeftAreNotMissed) {
  join();
  EXPECT_FALSE(watch_.others_left());
  watch_.left(1);
  EXPECT_TRUE(watch_.others_left());
  EXPECT_FALSE(pass(100s, {0}).fatal);
}

TEST(PulseSampler, TellsHowLongNothingMoved) {
  comm::TrainingPulse pulse;
  PulseSampler sampler(pulse);
  auto now = AwakeClock::Clock::now();
  const auto sample = [&] { return sampler.sample(now += 500ms); };
  EXPECT_EQ(sample().still_ms(), 0);
  EXPECT_EQ(sample().still_ms(), 0) << "idle";
  pulse.begin_command(3);
  pulse.begin_collective("all_gather", 4, pulse.keep_name("fsdp"));
  EXPECT_EQ(sample().still_ms(), 0);
  pulse.enter_transport();
  pulse.enter_transport();
  sample();
  const v1::Heartbeat inside = sample();
  EXPECT_EQ(inside.seq(), 3);
  EXPECT_EQ(inside.still_ms(), 1000);
  EXPECT_EQ(inside.transport_ms(), 500);
  EXPECT_EQ(inside.last_collective(), "all_gather #4 of group 'fsdp'");
  pulse.leave_transport();
  EXPECT_EQ(sample().transport_ms(), 1000);
  pulse.leave_transport();
  EXPECT_EQ(sample().transport_ms(), 0);
  pulse.advance();
  EXPECT_EQ(sample().still_ms(), 0);
  now += 8h;  // stopped
  EXPECT_LE(sample().still_ms(), 1000);
  pulse.end_command();
  EXPECT_EQ(sample().seq(), 0);
}

v1::RankCommand create_preset(const std::string& preset) {
  v1::RankCommand command;
  auto& create = *command.mutable_create_run();
  create.set_run("run");
  create.mutable_config()->mutable_model()->set_preset(preset);
  create.mutable_config()->mutable_training()->set_seq_len(256);
  create.mutable_config()->mutable_training()->set_global_batch_size(8);
  return command;
}

std::int64_t save_deadline(const std::string& preset) {
  CommandDeadlines deadlines;
  v1::RankCommand command = create_preset(preset);
  deadlines.set(&command);
  EXPECT_GE(command.deadline_ms(), 60'000);
  command.mutable_write_state()->set_run("run");
  command.clear_deadline_ms();
  deadlines.set(&command);
  return command.deadline_ms();
}

TEST(CommandDeadlines, GrowWithTheSizeOfTheModel) {
  const std::int64_t small = save_deadline("byte_gpt_tiny");
  const std::int64_t large = save_deadline("gpt2_124m");
  EXPECT_GE(small, 60'000);
  EXPECT_LT(small, 120'000);
  EXPECT_GT(large, 200'000) << "2 GB at 10 MB/s";
}

TEST(CommandDeadlines, ALoadHasTimeForItsFiles) {
  const test::TempFolder folder;
  std::ofstream(folder / "weights") << "";
  std::filesystem::resize_file(folder / "weights", std::uintmax_t{10} << 30);
  CommandDeadlines deadlines;
  v1::RankCommand command = create_preset("byte_gpt_tiny");
  command.mutable_create_run()->mutable_folders()->set_checkpoints(folder.path().string());
  deadlines.set(&command);
  EXPECT_GT(command.deadline_ms(), 1'000'000) << "10 GiB at 10 MB/s";
}

TEST(CommandDeadlines, GivenOnesAndUnknownRunsStayAsTheyAre) {
  CommandDeadlines deadlines;
  v1::RankCommand command;
  command.mutable_apply_gradients()->set_run("nobody");
  deadlines.set(&command);
  EXPECT_EQ(command.deadline_ms(), 0);
  command = create_preset("byte_gpt_tiny");
  command.set_deadline_ms(5);
  deadlines.set(&command);
  EXPECT_EQ(command.deadline_ms(), 5);
}

}  // namespace
}  // namespace meshloom::control
