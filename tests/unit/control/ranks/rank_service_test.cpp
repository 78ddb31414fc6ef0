// SPDX-License-Identifier: Apache-2.0
// Rank 0 and its followers over real streams.
#include "daemon/control/ranks/rank_service.h"

#include <gtest/gtest.h>

#include <thread>

#include "daemon/control/net/grpc_server.h"
#include "daemon/control/ranks/beat_server.h"
#include "daemon/control/ranks/follower.h"
#include "daemon/control/ranks/rank_channel.h"
#include "tests/unit/control/ranks/failed_ranks.h"
#include "tests/unit/control/ranks/rank_messages.h"

namespace meshloom::control {
namespace {

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

/// Keeps why rank 0 has ended.
class Rank0End final : public Follower::Observer {
 public:
  void rank0_ended(const std::string& cause) override {
    const std::lock_guard lock(mutex_);
    cause_ = cause;
  }
  std::string cause() const {
    const std::lock_guard lock(mutex_);
    return cause_;
  }

 private:
  mutable std::mutex mutex_;
  std::string cause_;
};

TEST(Follower, LeavesWhereNothingIsHeardOfRank0) {
  SilentService service;
  GrpcServer server(
      {resolve_listen_address("127.0.0.1:0", "listen"), {&service}, 16, false, 16, true});
  Rank0End end;
  v1::RankHello hello;
  hello.set_rank(1);
  Follower follower({"127.0.0.1:" + std::to_string(server.port()), "127.0.0.1:1", "secret", hello,
                     nullptr, std::chrono::milliseconds(1500)},
                    end);
  EXPECT_FALSE(follower.commands().pop());
  follower.wait_for_end();
  const std::string cause = end.cause();
  EXPECT_NE(cause.find("rank 0 is given up: nothing was heard of it for 1."), std::string::npos)
      << cause;
}

/// Passes beats on to a watch, which nobody looks at.
class HeardBeats final : public BeatServer::Observer {
 public:
  explicit HeardBeats(RankWatch& watch) : watch_(watch) {}
  void heard(int rank, const v1::Heartbeat& beat, BeatServer::Clock::time_point asked) override {
    watch_.heard(rank, &beat, asked);
  }
  void look() override {}

 private:
  RankWatch& watch_;
};

/// Rank 0's service and one follower over a real stream.
class StreamTest : public ::testing::Test, private RankServiceImpl::Observer {
 protected:
  StreamTest()
      : executor_(2, failed_),
        watch_(2, {}, &executor_),
        service_(executor_, watch_, {2, "secret", *this}),
        server_(
            {resolve_listen_address("127.0.0.1:0", "listen"), {&service_}, 16, false, 16, true}),
        beats_({resolve_listen_address("127.0.0.1:0", "beats"), "secret", 2}, heard_) {
    executor_.attach(0, &own_);
    beats_.start();
  }
  std::unique_ptr<Follower> join(const std::string& secret, int rank) {
    v1::RankHello hello;
    hello.set_rank(rank);
    hello.set_host("somewhere");
    return std::make_unique<Follower>(
        Follower::Options{"127.0.0.1:" + std::to_string(server_.port()),
                          "127.0.0.1:" + std::to_string(beats_.port()), secret, hello},
        end_);
  }
  template <typename Condition>
  static bool eventually(Condition condition) {
    for (int i = 0; i < 2000 && !condition(); ++i)
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    return condition();
  }

  void all_ranks_joined() override { joined_ = true; }
  void request_stop(const std::string& cause) override { stop_cause_ = cause; }

  std::string stop_cause_;
  FailedRanks failed_;
  Rank0End end_;
  std::atomic<bool> joined_{false};
  CommandQueue own_;
  Executor executor_;
  RankWatch watch_;
  HeardBeats heard_{watch_};
  RankServiceImpl service_;
  GrpcServer server_;
  BeatServer beats_;
};

TEST_F(StreamTest, CommandsGoOutAndResultsComeBack) {
  auto follower = join("secret", 1);
  ASSERT_TRUE(eventually([&] { return joined_.load(); }));
  const auto ticket = executor_.submit(optim_step("a"));
  EXPECT_EQ(follower->commands().pop()->apply_gradients().run(), "a");
  follower->complete(answer(1, 0));  // the stream knows who speaks
  executor_.complete(answer(1, 0));
  EXPECT_EQ(executor_.wait(ticket).seq(), 1);
  follower->request_stop("SIGTERM");
  EXPECT_TRUE(eventually([&] { return stop_cause_ == "rank 1: SIGTERM"; }));
  executor_.stop();
  EXPECT_TRUE(follower->commands().pop()->has_stop());
  follower->leave();
  follower.reset();
  server_.shutdown();
  EXPECT_EQ(failed_.cause(), "");
  EXPECT_EQ(end_.cause(), "");
}

TEST_F(StreamTest, MessagesLargerThanAClientsPass) {
  auto follower = join("secret", 1);
  ASSERT_TRUE(eventually([&] { return joined_.load(); }));
  const auto command = executor_.submit(sample_of(2'000'000));
  EXPECT_EQ(follower->commands().pop()->sample().sequences(0).token_ids_size(), 2'000'000);
  auto large = answer(1, 0);
  large.mutable_create_run()->set_plan(std::string(8 << 20, 'x'));
  follower->complete(large);
  executor_.complete(answer(1, 0));
  EXPECT_EQ(executor_.wait(command).seq(), 1);
  const auto second = executor_.submit(optim_step("a"));
  large.set_seq(2);
  large.mutable_create_run()->set_plan(std::string(kLargestCommand, 'x'));
  follower->complete(large);
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
  EXPECT_FALSE(follower->commands().pop());
  EXPECT_EQ(end_.cause(), "rank 0 failed");
}

// Whatever the large one's bytes are doing, what is behind it on the stream of commands is heard.
TEST_F(StreamTest, NothingWaitsBehindTheBytesOfALargeCommand) {
  const auto stub = v1::RankService::NewStub(grpc::CreateChannel(
      "127.0.0.1:" + std::to_string(server_.port()), grpc::InsecureChannelCredentials()));
  grpc::ClientContext context, fetching;
  context.AddMetadata(kSecretKey, "secret");
  fetching.AddMetadata(kSecretKey, "secret");
  const auto stream = stub->Follow(&context);
  v1::RankMessage hello;
  hello.mutable_hello()->set_rank(1);
  stream->Write(hello);
  ASSERT_TRUE(eventually([&] { return joined_.load(); }));
  executor_.submit(sample_of(4'000'000));  // 20 MB
  executor_.submit(optim_step("behind it"));
  v1::RankCommand command;
  ASSERT_TRUE(stream->Read(&command));
  EXPECT_TRUE(command.has_bulk());
  EXPECT_LT(command.ByteSizeLong(), 64u);
  v1::FetchCommandRequest request;
  request.set_rank(1);
  request.set_seq(command.seq());
  const auto pieces = stub->FetchCommand(&fetching, request);
  v1::CommandPiece piece;
  ASSERT_TRUE(pieces->Read(&piece));
  ASSERT_TRUE(stream->Read(&command));
  EXPECT_EQ(command.apply_gradients().run(), "behind it");
  executor_.fail(CommError("over"));
  ASSERT_TRUE(stream->Read(&command));
  EXPECT_TRUE(command.has_abort());
  std::string bytes = piece.data();
  while (pieces->Read(&piece)) {
    EXPECT_LE(piece.data().size(), std::size_t{1} << 20);
    bytes += piece.data();
  }
  EXPECT_TRUE(pieces->Finish().ok());
  ASSERT_TRUE(command.ParseFromString(bytes));
  EXPECT_EQ(command.seq(), request.seq());
  EXPECT_EQ(command.sample().sequences(0).token_ids_size(), 4'000'000);
  grpc::ClientContext again;
  again.AddMetadata(kSecretKey, "secret");
  EXPECT_EQ(stub->FetchCommand(&again, request)->Finish().error_code(),
            grpc::StatusCode::NOT_FOUND);
  grpc::ClientContext stranger;
  EXPECT_EQ(stub->FetchCommand(&stranger, request)->Finish().error_code(),
            grpc::StatusCode::UNAUTHENTICATED);
  context.TryCancel();
}

TEST_F(StreamTest, LargeCommandsKeepTheirPlace) {
  auto follower = join("secret", 1);
  ASSERT_TRUE(eventually([&] { return joined_.load(); }));
  for (int i = 1; i <= 20; ++i)
    executor_.submit(i % 3 == 0 ? sample_of(100'000 * i) : optim_step("a"));
  for (int i = 1; i <= 20; ++i) {
    const CommandPtr command = follower->commands().pop();
    ASSERT_TRUE(command);
    EXPECT_EQ(command->seq(), i);
    EXPECT_EQ(command->has_sample(), i % 3 == 0);
    if (command->has_sample()) {
      EXPECT_EQ(command->sample().sequences(0).token_ids_size(), 100'000 * i);
    }
  }
  EXPECT_EQ(end_.cause(), "");
  executor_.stop();
  EXPECT_TRUE(follower->commands().pop()->has_stop());
  follower->leave();
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
  auto large = optim_step(std::string(60 << 10, 'a'));
  const auto start = std::chrono::steady_clock::now();
  for (int i = 0; i < 1024; ++i) executor_.submit(large);
  EXPECT_FALSE(executor_.unanswered(1025));
  executor_.fail(CommError("rank 1 is given up"));
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(5));
  context.TryCancel();
}

TEST_F(StreamTest, HeartbeatsGoBothWaysAndTellWhatTheTrainingThreadDoes) {
  comm::TrainingPulse pulse;
  v1::RankHello hello;
  hello.set_rank(1);
  Follower follower({"127.0.0.1:" + std::to_string(server_.port()),
                     "127.0.0.1:" + std::to_string(beats_.port()), "secret", hello, &pulse},
                    end_);
  ASSERT_TRUE(eventually([&] { return joined_.load(); }));
  auto command = optim_step("a");
  command.set_deadline_ms(1);
  executor_.submit(command);
  pulse.begin_command(1);
  pulse.begin_collective("all_reduce", 7, pulse.keep_name("dp"));
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
  EXPECT_EQ(end_.cause(), "");
}

TEST_F(StreamTest, StrangersAndImpossibleRanksDoNotJoin) {
  for (const auto& [secret, rank] :
       {std::pair{"secreT", 1}, {"", 1}, {"secret", 0}, {"secret", 2}, {"secret", -1}}) {
    auto stranger = join(secret, rank);
    EXPECT_FALSE(stranger->commands().pop());
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

}  // namespace
}  // namespace meshloom::control
