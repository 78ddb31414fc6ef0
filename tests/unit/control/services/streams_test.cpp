// SPDX-License-Identifier: Apache-2.0
// Clients that read slowly or never, handlers that block, and calls that gRPC refuses.
#include <grpcpp/generic/generic_stub.h>
#include <gtest/gtest.h>

#include <future>

#include "tests/unit/control/fake_daemon.h"
#include "tests/unit/control/fake_manifest.h"

namespace meshloom::control {
namespace {

using namespace std::chrono_literals;
using Clock = std::chrono::steady_clock;

/// Calls a method with bytes as they are.
grpc::Status call_with_bytes(const std::shared_ptr<grpc::Channel>& channel,
                             const std::string& method, const std::string& bytes,
                             std::chrono::milliseconds timeout = 10s) {
  grpc::GenericStub stub(channel);
  grpc::ClientContext context;
  context.set_deadline(std::chrono::system_clock::now() + timeout);
  const grpc::Slice slice(bytes);
  const grpc::ByteBuffer request(&slice, 1);
  grpc::ByteBuffer response;
  std::promise<grpc::Status> ended;
  stub.UnaryCall(&context, method, grpc::StubOptions(), &request, &response,
                 [&](const grpc::Status& status) { ended.set_value(status); });
  return ended.get_future().get();
}

int thread_count() {
  const std::filesystem::directory_iterator tasks("/proc/self/task");
  return static_cast<int>(std::distance(begin(tasks), end(tasks)));
}

class StreamsTest : public ::testing::Test {
 protected:
  void start(const FakeDaemonOptions& options) {
    daemon_ = std::make_unique<FakeDaemon>(folder_ / "state", plan_, 1, options);
  }
  /// A connection of its own that takes little before its client reads.
  std::shared_ptr<grpc::Channel> small_channel() const {
    grpc::ChannelArguments arguments;
    arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
    arguments.SetInt(GRPC_ARG_HTTP2_BDP_PROBE, 0);
    return grpc::CreateCustomChannel(daemon_->address(), grpc::InsecureChannelCredentials(),
                                     arguments);
  }
  v1::SubmitJobRequest request(const std::string& name, std::int64_t steps) const {
    v1::SubmitJobRequest request;
    request.mutable_spec()->set_name(name);
    request.mutable_spec()->mutable_run()->mutable_training()->set_steps(steps);
    return request;
  }
  grpc::Status submit(const v1::SubmitJobRequest& request) {
    grpc::ClientContext context;
    v1::SubmitJobResponse response;
    return v1::JobService::NewStub(daemon_->channel())->SubmitJob(&context, request, &response);
  }
  /// A checkpoint with a file of so many bytes.
  void make_checkpoint(const std::string& job, std::size_t bytes) {
    ASSERT_TRUE(submit(request(job, 1)).ok());
    daemon_->wait_for(job, v1::JOB_STATE_SUCCEEDED);
    const auto folder = daemon_->state().checkpoints(job) / "step-7";
    std::filesystem::create_directories(folder);
    std::ofstream(folder / "weights") << std::string(bytes, 'w');
    write_manifest(folder, 7);
  }

  test::TempFolder folder_;
  FakePlan plan_;
  std::unique_ptr<FakeDaemon> daemon_;
};

/// A stream that its client has opened and does not read.
template <typename Response>
struct Unread {
  grpc::ClientContext context;
  std::shared_ptr<grpc::Channel> channel;
  std::unique_ptr<grpc::ClientReader<Response>> reader;
  ~Unread() {
    context.TryCancel();
    Response response;
    while (reader->Read(&response)) {
    }
    reader->Finish();
  }
};

TEST_F(StreamsTest, HealthAnswersWhileHandlersBlock) {
  std::promise<void> go;
  const std::shared_future<void> gate = go.get_future().share();
  std::atomic<int> blocked{0};
  start({.on_resolve = [&] {
    ++blocked;
    gate.wait();
  }});
  constexpr int kCalls = 16;
  std::vector<std::future<grpc::Status>> calls;
  for (int i = 0; i < kCalls; ++i)
    calls.push_back(std::async(
        std::launch::async, [this, i] { return submit(request("job" + std::to_string(i), 1)); }));
  while (blocked < 3) std::this_thread::sleep_for(1ms);
  const auto channel = daemon_->channel();
  int answered = 0;
  for (int i = 0; i < 20; ++i) {
    answered += call_with_bytes(channel, "/grpc.health.v1.Health/Check", "").ok() ? 1 : 0;
    answered +=
        call_with_bytes(channel, "/meshloom.v1.JobService/GetJob", "\x0a\x01x").error_code() ==
        grpc::StatusCode::NOT_FOUND;
  }
  EXPECT_EQ(answered, 40);
  // Every one of them came before the first of those that were called before.
  for (auto& call : calls) EXPECT_EQ(call.wait_for(0s), std::future_status::timeout);
  EXPECT_EQ(blocked, 3) << "of one client, whose others wait for their turn";
  go.set_value();
  for (auto& call : calls) EXPECT_TRUE(call.get().ok());
}

TEST_F(StreamsTest, ManyWatchersSeeEveryEventWithoutAThreadEach) {
  plan_.step_time = 1ms;
  start({});
  ASSERT_TRUE(submit(request("a", 300)).ok());
  constexpr int kWatchers = 40;
  const int before = thread_count();
  std::vector<std::unique_ptr<Unread<v1::WatchJobResponse>>> watchers;
  const auto stub = v1::JobService::NewStub(daemon_->channel());
  v1::WatchJobRequest watch;
  watch.set_name("a");
  for (int i = 0; i < kWatchers; ++i) {
    auto& watcher = watchers.emplace_back(std::make_unique<Unread<v1::WatchJobResponse>>());
    watcher->reader = stub->WatchJob(&watcher->context, watch);
  }
  EXPECT_LT(thread_count() - before, kWatchers / 2);
  for (auto& watcher : watchers) {
    v1::WatchJobResponse response;
    ASSERT_TRUE(watcher->reader->Read(&response));
    std::int64_t revision = response.event().revision();
    v1::JobState state = response.event().job().state();
    while (watcher->reader->Read(&response)) {
      EXPECT_EQ(response.event().revision(), ++revision);
      if (response.event().has_job()) state = response.event().job().state();
    }
    EXPECT_EQ(state, v1::JOB_STATE_SUCCEEDED);
  }
}

TEST_F(StreamsTest, WatchersThatNeverReadGiveTheirPlacesBack) {
  start({.watches = {"watches of jobs", 4, 1, 300ms}});
  ASSERT_TRUE(submit(request("endless", 100'000'000)).ok());
  v1::WatchJobRequest watch;
  watch.set_name("endless");
  std::vector<std::unique_ptr<Unread<v1::WatchJobResponse>>> unread;
  for (int i = 0; i < 3; ++i) {
    auto& item = unread.emplace_back(std::make_unique<Unread<v1::WatchJobResponse>>());
    item->channel = small_channel();
    item->reader = v1::JobService::NewStub(item->channel)->WatchJob(&item->context, watch);
    item->reader->WaitForInitialMetadata();
  }
  const auto stub = v1::JobService::NewStub(daemon_->channel());
  bool was_refused = false;
  bool reads = false;
  for (const auto end = Clock::now() + 60s; Clock::now() < end && !reads;) {
    Unread<v1::WatchJobResponse> reading;
    reading.reader = stub->WatchJob(&reading.context, watch);
    v1::WatchJobResponse response;
    reads = reading.reader->Read(&response);
    was_refused = was_refused || !reads;
    if (!reads) std::this_thread::sleep_for(20ms);
  }
  EXPECT_TRUE(was_refused) << "one address has three of four places";
  EXPECT_TRUE(reads) << "the places of those that never read are taken for good";
  grpc::ClientContext context;
  v1::CancelJobRequest cancel;
  cancel.set_name("endless");
  v1::CancelJobResponse response;
  EXPECT_TRUE(stub->CancelJob(&context, cancel, &response).ok());
}

TEST_F(StreamsTest, DownloadsThatNeverReadGiveTheirPlacesBack) {
  start({.downloads = {"downloads", 4, 1, 300ms}});
  make_checkpoint("a", 6 << 20);
  v1::ReadCheckpointRequest read;
  read.set_name("checkpoints/a/step-7");
  std::vector<std::unique_ptr<Unread<v1::ReadCheckpointResponse>>> unread;
  for (int i = 0; i < 3; ++i) {
    auto& item = unread.emplace_back(std::make_unique<Unread<v1::ReadCheckpointResponse>>());
    item->channel = small_channel();
    item->reader =
        v1::CheckpointService::NewStub(item->channel)->ReadCheckpoint(&item->context, read);
    item->reader->WaitForInitialMetadata();
  }
  const auto stub = v1::CheckpointService::NewStub(daemon_->channel());
  std::size_t bytes = 0;
  grpc::Status last;
  for (const auto end = Clock::now() + 60s; Clock::now() < end && bytes == 0;) {
    grpc::ClientContext context;
    const auto reader = stub->ReadCheckpoint(&context, read);
    v1::ReadCheckpointResponse response;
    while (reader->Read(&response))
      if (response.file() == "weights") bytes += response.data().size();
    last = reader->Finish();
    if (bytes == 0) {
      EXPECT_EQ(last.error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED) << last.error_message();
      std::this_thread::sleep_for(20ms);
    }
  }
  EXPECT_TRUE(last.ok()) << last.error_message();
  EXPECT_EQ(bytes, 6u << 20);
}

TEST_F(StreamsTest, ADamagedCheckpointIsNotSentAsASoundOne) {
  start({});
  const auto expect_refused = [&](const std::string& job, const std::string& text) {
    grpc::ClientContext context;
    v1::ReadCheckpointRequest read;
    read.set_name("checkpoints/" + job + "/step-7");
    const auto stub = v1::CheckpointService::NewStub(daemon_->channel());
    const auto reader = stub->ReadCheckpoint(&context, read);
    v1::ReadCheckpointResponse piece;
    while (reader->Read(&piece))
      EXPECT_TRUE(piece.file() == "manifest.json" || piece.xxh3_128().empty())
          << job << ": a damaged file must not end with a digest";
    const grpc::Status status = reader->Finish();
    EXPECT_EQ(status.error_code(), grpc::StatusCode::DATA_LOSS) << job;
    EXPECT_NE(status.error_message().find(text), std::string::npos) << status.error_message();
  };
  const auto weights_of = [&](const std::string& job) {
    make_checkpoint(job, 3'000'000);
    return daemon_->state().checkpoints(job) / "step-7" / "weights";
  };
  std::fstream flipped(weights_of("flipped"), std::ios::in | std::ios::out);
  flipped.seekp(2'000'000) << 'x';
  flipped.close();
  std::filesystem::resize_file(weights_of("cut"), 1000);
  std::filesystem::remove(weights_of("gone"));
  expect_refused("flipped", "weights is damaged: its XXH3-128 is ");
  expect_refused("cut", "weights is damaged: 1000 bytes instead of 3000000");
  expect_refused("gone", "weights is damaged: it is not there");
}

TEST_F(StreamsTest, WhoeverHasReadTheEndOfACallMayMakeTheNext) {
  start({.watches = {"watches of jobs", 1, 1}});
  ASSERT_TRUE(submit(request("a", 1)).ok());
  daemon_->wait_for("a", v1::JOB_STATE_SUCCEEDED);
  const auto stub = v1::JobService::NewStub(daemon_->channel());
  for (int i = 0; i < 500; ++i) {
    const bool known = i % 2 == 0;
    grpc::ClientContext context;
    v1::WatchJobRequest watch;
    watch.set_name(known ? "a" : "b");
    const auto reader = stub->WatchJob(&context, watch);
    for (v1::WatchJobResponse response; reader->Read(&response);) {
    }
    const grpc::Status status = reader->Finish();
    ASSERT_EQ(status.error_code(), known ? grpc::StatusCode::OK : grpc::StatusCode::NOT_FOUND)
        << "call " << i << ": " << status.error_message();
  }
}

TEST_F(StreamsTest, StreamsThatAreCancelledAtAnyMomentLeaveNothing) {
  plan_.step_time = 1ms;
  start({});
  make_checkpoint("a", 2 << 20);
  ASSERT_TRUE(submit(request("long", 1'000'000)).ok());
  const auto jobs = v1::JobService::NewStub(daemon_->channel());
  const auto checkpoints = v1::CheckpointService::NewStub(daemon_->channel());
  constexpr int kCalls = 400;
  for (int i = 0; i < kCalls; ++i) {
    grpc::ClientContext context;
    context.set_deadline(std::chrono::system_clock::now() + std::chrono::microseconds(37 * i));
    if (i % 2 == 0) {
      v1::WatchJobRequest watch;
      watch.set_name("long");
      jobs->WatchJob(&context, watch)->Finish();
    } else {
      v1::ReadCheckpointRequest read;
      read.set_name("checkpoints/a/step-7");
      checkpoints->ReadCheckpoint(&context, read)->Finish();
    }
  }
  // Every place is free again: as many as one address may have.
  std::vector<std::unique_ptr<Unread<v1::WatchJobResponse>>> watchers;
  v1::WatchJobRequest watch;
  watch.set_name("long");
  const auto all_open = [&] {
    watchers.clear();
    for (int i = 0; i < 48; ++i) {
      auto& item = watchers.emplace_back(std::make_unique<Unread<v1::WatchJobResponse>>());
      item->reader = jobs->WatchJob(&item->context, watch);
      v1::WatchJobResponse response;
      if (!item->reader->Read(&response)) return false;
    }
    return true;
  };
  bool open = false;
  for (const auto end = Clock::now() + 20s; Clock::now() < end && !open;) open = all_open();
  EXPECT_TRUE(open);
}

TEST_F(StreamsTest, RefusalsSayWhy) {
  start({});
  const auto channel = daemon_->channel();
  const auto unknown = call_with_bytes(channel, "/meshloom.v1.JobService/Explode", "");
  EXPECT_EQ(unknown.error_code(), grpc::StatusCode::UNIMPLEMENTED);
  EXPECT_NE(unknown.error_message().find("/meshloom.v1.JobService/Explode"), std::string::npos)
      << unknown.error_message();
  // What gRPC refuses before any handler has no text; the client gives it one.
  const auto large =
      call_with_bytes(channel, "/meshloom.v1.JobService/SubmitJob", std::string(17 << 20, 'x'));
  EXPECT_EQ(large.error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED);
  EXPECT_EQ(call_with_bytes(channel, "/meshloom.v1.JobService/SubmitJob", "\xff\xff").error_code(),
            grpc::StatusCode::INVALID_ARGUMENT);
  EXPECT_TRUE(call_with_bytes(channel, "/meshloom.v1.JobService/ListJobs", "").ok());
}

}  // namespace
}  // namespace meshloom::control
