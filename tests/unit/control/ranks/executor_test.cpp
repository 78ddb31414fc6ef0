// SPDX-License-Identifier: Apache-2.0
#include "daemon/control/ranks/executor.h"

#include <gtest/gtest.h>

#include <thread>

#include "daemon/control/host/host_info.h"
#include "daemon/control/net/grpc_server.h"
#include "daemon/control/ranks/beat_server.h"
#include "daemon/control/ranks/follower.h"
#include "daemon/control/ranks/rank_error.h"
#include "daemon/control/ranks/rank_service.h"
#include "daemon/control/ranks/rank_worker.h"
#include "tests/support/temp_folder.h"
#include "tests/unit/control/fake_run.h"

namespace meshloom::control {
namespace {

v1::RankCommand create_run(const std::string& name, const std::filesystem::path& folder) {
  v1::RankCommand command;
  command.mutable_create_run()->set_run(name);
  command.mutable_create_run()->set_checkpoint_dir(folder.string());
  return command;
}

v1::RankCommand optim_step(const std::string& name) {
  v1::RankCommand command;
  command.mutable_optim_step()->set_run(name);
  return command;
}

v1::RankCommand save_state(const std::string& name) {
  v1::RankCommand command;
  command.mutable_save_state()->set_run(name);
  return command;
}

TEST(RankWorker, AFailedStepSpoilsTheRunAndNoOther) {
  const test::TempFolder folder;
  FakePlan plan;
  plan.fail_at_step = 2;
  FakeFactory factory(plan, 0);
  RankWorker worker(0, factory);
  EXPECT_FALSE(worker.execute(create_run("a", folder / "a")).has_error());
  EXPECT_FALSE(worker.execute(create_run("b", folder / "b")).has_error());
  EXPECT_EQ(worker.execute(optim_step("a")).optim_step().metrics().step(), 1);
  EXPECT_EQ(worker.execute(optim_step("a")).error().info().reason(), "NUMERIC_ERROR");
  EXPECT_EQ(worker.execute(save_state("a")).error().info().reason(), "RUN_FAILED");
  EXPECT_EQ(worker.execute(optim_step("b")).optim_step().metrics().step(), 1);
  EXPECT_EQ(worker.execute(optim_step("nobody")).error().info().reason(), "RUN_NOT_FOUND");
}

TEST(RankWorker, AFailedSaveLeavesTheRunAlone) {
  const test::TempFolder folder;
  FakePlan plan;
  plan.fail_save_at_step = 1;
  FakeFactory factory(plan, 0);
  RankWorker worker(0, factory);
  worker.execute(create_run("a", folder / "a"));
  worker.execute(optim_step("a"));
  EXPECT_EQ(worker.execute(save_state("a")).error().info().reason(), "DISK_FULL");
  EXPECT_EQ(worker.execute(optim_step("a")).optim_step().metrics().step(), 2);
  EXPECT_FALSE(worker.execute(save_state("a")).has_error());
}

TEST(RankWorker, RefusesAnOlderEpoch) {
  const test::TempFolder folder;
  FakePlan plan;
  FakeFactory factory(plan, 0);
  RankWorker worker(0, factory);
  auto command = create_run("a", folder / "a");
  command.set_epoch(5);
  EXPECT_FALSE(worker.execute(command).has_error());
  auto old = optim_step("a");
  old.set_epoch(4);
  EXPECT_EQ(worker.execute(old).error().info().reason(), "EPOCH_STALE");
  EXPECT_EQ(worker.execute(old).error_scope(), v1::ERROR_SCOPE_RANKS);
}

/// Answers by hand.
struct Recorder : CommandSink {
  std::vector<v1::RankCommand> commands;
  bool send(const v1::RankCommand& command) override {
    commands.push_back(command);
    return true;
  }
};

v1::RankResult answer(std::int64_t seq, int rank) {
  v1::RankResult result;
  result.set_seq(seq);
  result.set_rank(rank);
  return result;
}

class ExecutorTest : public ::testing::Test {
 protected:
  ExecutorTest() : executor_(2, [this](const Error& error) { fatal_ = error.what(); }) {
    executor_.attach(0, &ranks_[0]);
    executor_.attach(1, &ranks_[1]);
  }
  Recorder ranks_[2];
  std::string fatal_;
  Executor executor_;
};

TEST_F(ExecutorTest, EveryRankGetsTheSameCommandsInOrder) {
  executor_.set_epoch(7);
  for (int i = 0; i < 3; ++i) executor_.submit(optim_step("a"));
  for (const auto& rank : ranks_) {
    ASSERT_EQ(rank.commands.size(), 3u);
    for (std::size_t i = 0; i < 3; ++i) {
      EXPECT_EQ(rank.commands[i].seq(), static_cast<std::int64_t>(i) + 1);
      EXPECT_EQ(rank.commands[i].epoch(), 7);
    }
  }
}

TEST_F(ExecutorTest, NothingComesBetweenCommandsThatAreSubmittedTogether) {
  std::thread other([&] {
    for (int i = 0; i < 200; ++i) executor_.submit(optim_step("other"));
  });
  for (int i = 0; i < 200; ++i) {
    const auto tickets = executor_.submit_together({optim_step("a"), optim_step("b")});
    ASSERT_EQ(tickets.size(), 2u);
  }
  other.join();
  for (const auto& rank : ranks_)
    for (std::size_t i = 0; i < rank.commands.size(); ++i)
      if (rank.commands[i].optim_step().run() == "a") {
        ASSERT_EQ(rank.commands.at(i + 1).optim_step().run(), "b");
      }
}

TEST_F(ExecutorTest, WaitsForAllRanksAndMergesMemory) {
  const auto ticket = executor_.submit(optim_step("a"));
  auto first = answer(1, 0);
  first.set_peak_memory_bytes(10);
  first.mutable_save_state()->set_folder("step-15");
  executor_.complete(first);
  executor_.complete(first);  // a repeat counts once
  EXPECT_TRUE(executor_.unanswered(1));
  auto second = answer(1, 1);
  second.set_peak_memory_bytes(30);
  executor_.complete(second);
  executor_.complete(answer(99, 0));
  executor_.complete(answer(1, 17));
  const auto result = executor_.wait(ticket);
  EXPECT_EQ(result.peak_memory_bytes(), 30);
  EXPECT_EQ(result.save_state().folder(), "step-15");
  EXPECT_EQ(executor_.memory_of(1).peak, 30);
}

TEST_F(ExecutorTest, ThrowsTheErrorOfTheLowestRank) {
  const auto ticket = executor_.submit(optim_step("a"));
  auto failed = answer(1, 1);
  set_error(std::make_exception_ptr(NumericError("loss is nan")), &failed);
  executor_.complete(answer(1, 0));
  executor_.complete(failed);
  try {
    executor_.wait(ticket);
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kNumeric);
  }
  EXPECT_FALSE(executor_.fatal());
}

TEST_F(ExecutorTest, AFatalCauseReachesAllThatWaitAndAllRanks) {
  const auto ticket = executor_.submit(optim_step("a"));
  std::thread lost([&] { executor_.fail(CommError("rank 1 left")); });
  EXPECT_THROW(executor_.wait(ticket), Error);
  lost.join();
  executor_.fail(CommError("a later one"));
  EXPECT_EQ(fatal_, "rank 1 left");
  EXPECT_THROW(executor_.submit(optim_step("a")), Error);
  EXPECT_EQ(ranks_[0].commands.back().abort().cause(), "rank 1 left");
  EXPECT_EQ(ranks_[1].commands.back().abort().cause(), "rank 1 left");
}

TEST_F(ExecutorTest, AResultThatLeavesTheRanksOutOfStepIsFatalForAllThatWait) {
  const auto first = executor_.submit(optim_step("a"));
  const auto second = executor_.submit(optim_step("a"));
  auto failed = answer(1, 1);
  set_error(std::make_exception_ptr(CommError("all_reduce: rank 0 is missing")), &failed);
  executor_.complete(failed);
  EXPECT_EQ(fatal_, "all_reduce: rank 0 is missing");
  EXPECT_THROW(executor_.wait(first), Error);
  EXPECT_THROW(executor_.wait(second), Error);
}

TEST_F(ExecutorTest, TellsOfWhatIsNotAnswered) {
  auto command = optim_step("a");
  command.set_deadline_ms(20);
  executor_.submit(command);
  executor_.complete(answer(1, 0));
  ASSERT_TRUE(executor_.unanswered(1));
  EXPECT_EQ(executor_.unanswered(1)->verb, "optim_step");
  EXPECT_EQ(executor_.unanswered(1)->deadline_ms, 20);
  executor_.complete(answer(1, 1));
  EXPECT_FALSE(executor_.unanswered(1));
  EXPECT_FALSE(executor_.unanswered(0));
}

TEST_F(ExecutorTest, TakesNothingAfterTheStop) {
  executor_.stop();
  executor_.stop();
  EXPECT_TRUE(ranks_[1].commands.back().has_stop());
  EXPECT_EQ(ranks_[1].commands.size(), 1u);
  EXPECT_THROW(executor_.submit(optim_step("a")), Unavailable);
}

v1::RankCommand sample_of(std::int64_t tokens) {
  v1::RankCommand command;
  command.mutable_sample()->add_sequences()->mutable_token_ids()->Resize(static_cast<int>(tokens),
                                                                         1'000'000'000);
  return command;
}

TEST_F(ExecutorTest, ACommandThatIsTooLargeReachesNoRank) {
  try {
    executor_.submit(sample_of(7'000'000));
    FAIL();
  } catch (const ResourceExhausted& error) {
    EXPECT_EQ(error.reason(), "COMMAND_TOO_LARGE");
    EXPECT_NE(std::string(error.what()).find("command sample has 350000"), std::string::npos)
        << error.what();
  }
  executor_.submit(optim_step("a"));
  for (const auto& rank : ranks_) {
    ASSERT_EQ(rank.commands.size(), 1u);
    EXPECT_EQ(rank.commands[0].seq(), 1);
  }
  EXPECT_FALSE(executor_.fatal());
}

TEST(Executor, RefusesWhileRanksAreMissing) {
  Executor executor(2, [](const Error&) {});
  Recorder rank;
  executor.attach(0, &rank);
  EXPECT_FALSE(executor.all_attached());
  EXPECT_THROW(executor.submit(optim_step("a")), Unavailable);
}

/// Rank 0's service without its heartbeats and looks, as if all of rank 0 were frozen.
class SilentService final : public v1::RankService::Service {
 public:
  grpc::Status Follow(grpc::ServerContext*,
                      grpc::ServerReaderWriter<v1::RankCommand, v1::RankMessage>* stream) override {
    v1::RankMessage message;
    while (stream->Read(&message)) {
    }
    return grpc::Status::OK;
  }
};

TEST(Follower, LeavesWhereNothingIsHeardOfRank0) {
  SilentService service;
  GrpcServer server(
      {resolve_listen_address("127.0.0.1:0", "listen"), {&service}, 16, false, 16, true});
  std::mutex mutex;
  std::string cause;
  v1::RankHello hello;
  hello.set_rank(1);
  Follower follower({"127.0.0.1:" + std::to_string(server.port()), "127.0.0.1:1", "secret", hello,
                     [&](const std::string& text) {
                       const std::lock_guard lock(mutex);
                       cause = text;
                     },
                     nullptr, std::chrono::milliseconds(1500)});
  EXPECT_FALSE(follower.commands().pop().has_value());
  follower.wait_for_end();
  const std::lock_guard lock(mutex);
  EXPECT_NE(cause.find("rank 0 is given up: nothing was heard of it for 1."), std::string::npos)
      << cause;
}

/// Rank 0's service and one follower over a real stream.
class StreamTest : public ::testing::Test {
 protected:
  StreamTest()
      : executor_(2, [this](const Error& error) { fatal_ = error.what(); }),
        watch_(2, {}, [this](std::int64_t seq) { return executor_.unanswered(seq); }),
        service_(executor_, watch_,
                 {2, "secret", [this] { joined_ = true; },
                  [this](const std::string& cause) { stop_cause_ = cause; }}),
        server_(
            {resolve_listen_address("127.0.0.1:0", "listen"), {&service_}, 16, false, 16, true}),
        beats_({resolve_listen_address("127.0.0.1:0", "beats"), "secret", 2,
                [this](int rank, const v1::Heartbeat& beat, BeatServer::Clock::time_point asked) {
                  watch_.heard(rank, &beat, asked);
                }}) {
    executor_.attach(0, &own_);
    beats_.start([] {});
  }
  std::unique_ptr<Follower> join(const std::string& secret, int rank) {
    v1::RankHello hello;
    hello.set_rank(rank);
    hello.set_host("somewhere");
    return std::make_unique<Follower>(Follower::Options{
        "127.0.0.1:" + std::to_string(server_.port()), "127.0.0.1:" + std::to_string(beats_.port()),
        secret, hello, [this](const std::string& cause) { abort_cause_ = cause; }});
  }
  template <typename Condition>
  static bool eventually(Condition condition) {
    for (int i = 0; i < 2000 && !condition(); ++i)
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    return condition();
  }

  std::string fatal_, stop_cause_, abort_cause_;
  std::atomic<bool> joined_{false};
  CommandQueue own_;
  Executor executor_;
  RankWatch watch_;
  RankServiceImpl service_;
  GrpcServer server_;
  BeatServer beats_;
};

TEST_F(StreamTest, CommandsGoOutAndResultsComeBack) {
  auto follower = join("secret", 1);
  ASSERT_TRUE(eventually([&] { return joined_.load(); }));
  const auto ticket = executor_.submit(optim_step("a"));
  EXPECT_EQ(follower->commands().pop()->optim_step().run(), "a");
  follower->report(answer(1, 0));  // the stream knows who speaks
  executor_.complete(answer(1, 0));
  EXPECT_EQ(executor_.wait(ticket).seq(), 1);
  follower->request_stop("SIGTERM");
  EXPECT_TRUE(eventually([&] { return stop_cause_ == "rank 1: SIGTERM"; }));
  executor_.stop();
  EXPECT_TRUE(follower->commands().pop()->has_stop());
  follower->leave();
  follower.reset();
  server_.shutdown();
  EXPECT_EQ(fatal_, "");
  EXPECT_EQ(abort_cause_, "");
}

TEST_F(StreamTest, MessagesLargerThanAClientsPass) {
  auto follower = join("secret", 1);
  ASSERT_TRUE(eventually([&] { return joined_.load(); }));
  const auto command = executor_.submit(sample_of(2'000'000));
  EXPECT_EQ(follower->commands().pop()->sample().sequences(0).token_ids_size(), 2'000'000);
  auto large = answer(1, 0);
  large.mutable_create_run()->set_plan(std::string(8 << 20, 'x'));
  follower->report(large);
  executor_.complete(answer(1, 0));
  EXPECT_EQ(executor_.wait(command).seq(), 1);
  const auto second = executor_.submit(optim_step("a"));
  large.set_seq(2);
  large.mutable_create_run()->set_plan(std::string(kLargestCommand, 'x'));
  follower->report(large);
  executor_.complete(answer(2, 0));
  try {
    executor_.wait(second);
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.reason(), "RESULT_TOO_LARGE");
  }
  EXPECT_FALSE(executor_.fatal());
}

TEST_F(StreamTest, ALostRankIsNamed) {
  auto follower = join("secret", 1);
  ASSERT_TRUE(eventually([&] { return joined_.load(); }));
  follower.reset();
  EXPECT_TRUE(eventually([&] { return executor_.fatal().has_value(); }));
  EXPECT_NE(std::string(executor_.fatal()->what()).find("rank 1"), std::string::npos);
  EXPECT_NE(std::string(executor_.fatal()->what()).find("somewhere"), std::string::npos);
}

TEST_F(StreamTest, AnAbortReachesTheFollower) {
  auto follower = join("secret", 1);
  ASSERT_TRUE(eventually([&] { return joined_.load(); }));
  executor_.fail(CommError("rank 0 failed"));
  EXPECT_FALSE(follower->commands().pop().has_value());
  EXPECT_EQ(abort_cause_, "rank 0 failed");
}

TEST_F(StreamTest, APeerThatReadsNothingHoldsNobodyUp) {
  const auto channel = grpc::CreateChannel("127.0.0.1:" + std::to_string(server_.port()),
                                           grpc::InsecureChannelCredentials());
  const auto stub = v1::RankService::NewStub(channel);
  grpc::ClientContext context;
  context.AddMetadata(kSecretKey, "secret");
  const auto stream = stub->Follow(&context);
  v1::RankMessage hello;
  hello.mutable_hello()->set_rank(1);
  stream->Write(hello);
  ASSERT_TRUE(eventually([&] { return joined_.load(); }));
  // Far more than the windows of HTTP/2 and TCP hold.
  auto large = optim_step(std::string(1 << 20, 'a'));
  const auto start = std::chrono::steady_clock::now();
  for (int i = 0; i < 64; ++i) executor_.submit(large);
  EXPECT_FALSE(executor_.unanswered(65));
  executor_.fail(CommError("rank 1 is given up"));
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(5));
  context.TryCancel();
}

TEST_F(StreamTest, HeartbeatsGoBothWaysAndTellWhatTheTrainingThreadDoes) {
  comm::TrainingPulse pulse;
  v1::RankHello hello;
  hello.set_rank(1);
  Follower follower({"127.0.0.1:" + std::to_string(server_.port()),
                     "127.0.0.1:" + std::to_string(beats_.port()), "secret", hello,
                     [this](const std::string& cause) { abort_cause_ = cause; }, &pulse});
  ASSERT_TRUE(eventually([&] { return joined_.load(); }));
  auto command = optim_step("a");
  command.set_deadline_ms(1);
  executor_.submit(command);
  pulse.begin_command(1);
  pulse.begin_collective("all_reduce", 7, "dp");
  std::optional<Error> stuck;
  EXPECT_TRUE(eventually([&] {
    stuck = watch_.look().fatal;
    return stuck.has_value();
  }));
  EXPECT_EQ(stuck->reason(), "COMMAND_DEADLINE");
  EXPECT_NE(std::string(stuck->what())
                .find("in optim_step (seq 1), its last collective is all_reduce #7 of group 'dp'"),
            std::string::npos)
      << stuck->what();
  executor_.stop();
  follower.leave();
  EXPECT_TRUE(eventually([&] { return watch_.others_left(); }));
  EXPECT_EQ(abort_cause_, "");
}

TEST_F(StreamTest, StrangersAndImpossibleRanksDoNotJoin) {
  for (const auto& [secret, rank] :
       {std::pair{"secreT", 1}, {"", 1}, {"secret", 0}, {"secret", 2}, {"secret", -1}}) {
    auto stranger = join(secret, rank);
    EXPECT_FALSE(stranger->commands().pop().has_value());
    EXPECT_FALSE(joined_);
  }
  EXPECT_FALSE(executor_.fatal());
}

TEST_F(StreamTest, AWrongSecretIsUnauthenticated) {
  const auto stub = v1::RankService::NewStub(grpc::CreateChannel(
      "127.0.0.1:" + std::to_string(server_.port()), grpc::InsecureChannelCredentials()));
  for (const char* secret : {"secreT", ""}) {
    grpc::ClientContext context;
    if (*secret != 0) context.AddMetadata(kSecretKey, secret);
    const grpc::Status status = stub->Follow(&context)->Finish();
    EXPECT_EQ(status.error_code(), grpc::StatusCode::UNAUTHENTICATED);
    EXPECT_NE(status.error_message().find("for the ranks of one launch"), std::string::npos);
  }
}

TEST(HostInfo, QuotasAreReadAsTheKernelWritesThem) {
  EXPECT_EQ(cores_of_quota("max 100000"), 0);
  EXPECT_EQ(cores_of_quota("200000 100000"), 2);
  EXPECT_EQ(cores_of_quota("150000 100000"), 2);
  EXPECT_EQ(cores_of_quota("50000 100000"), 1);
  EXPECT_EQ(cores_of_quota(""), 0);
}

}  // namespace
}  // namespace meshloom::control
