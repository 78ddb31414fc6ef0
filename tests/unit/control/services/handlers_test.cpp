// SPDX-License-Identifier: Apache-2.0
// Handlers that a door without gRPC calls: answers that come later, streams, and what clients send.
#include <gtest/gtest.h>

#include <condition_variable>
#include <deque>
#include <mutex>

#include "daemon/control/services/job_service.h"
#include "daemon/control/services/upload_service.h"
#include "tests/support/eventually.h"
#include "tests/support/temp_folder.h"
#include "tests/unit/control/fake_admission.h"
#include "tests/unit/control/open_job_store.h"

namespace meshloom::control {
namespace {

using namespace std::chrono_literals;

/// Waits for the end of one call.
class WaitingDoor final : public UnaryDoor {
 public:
  void end(const grpc::Status& status) override {
    const std::lock_guard lock(mutex_);
    ++ends_;
    status_ = status;
  }
  grpc::Status wait() const {
    EXPECT_TRUE(test::eventually([&] { return ends() > 0; }));
    const std::lock_guard lock(mutex_);
    return status_;
  }
  int ends() const {
    const std::lock_guard lock(mutex_);
    return ends_;
  }

 private:
  mutable std::mutex mutex_;
  int ends_ = 0;
  grpc::Status status_;
};

/// Takes one event after the other when the test asks for it.
class SlowSink final : public StreamSink<v1::WatchJobResponse> {
 public:
  void send(const v1::WatchJobResponse& response) override {
    const std::lock_guard lock(mutex_);
    ++sent_;
    on_its_way_ = response;
  }
  void end(const grpc::Status& status) override {
    const std::lock_guard lock(mutex_);
    end_ = status;
  }
  bool cut_off() override { return false; }

  int sent() const {
    const std::lock_guard lock(mutex_);
    return sent_;
  }
  v1::JobEvent event() const {
    const std::lock_guard lock(mutex_);
    return on_its_way_.event();
  }
  std::optional<grpc::Status> ended() const {
    const std::lock_guard lock(mutex_);
    return end_;
  }

 private:
  mutable std::mutex mutex_;
  int sent_ = 0;
  v1::WatchJobResponse on_its_way_;
  std::optional<grpc::Status> end_;
};

class NoRuns final : public RunHolders {
 public:
  std::string own_open_run(const Caller&, const std::string& name) const override { return name; }
  Hold hold_lease(const Caller&, const std::string&) const override { return Hold(); }
};

/// What a client has sent, and then nothing more.
class SentChunks final : public RequestStream<v1::WriteUploadRequest> {
 public:
  explicit SentChunks(std::deque<v1::WriteUploadRequest> chunks = {})
      : chunks_(std::move(chunks)) {}
  bool read(v1::WriteUploadRequest* request) override {
    if (chunks_.empty()) return false;
    *request = std::move(chunks_.front());
    chunks_.pop_front();
    return true;
  }
  void cut_off() override { chunks_.clear(); }

 private:
  std::deque<v1::WriteUploadRequest> chunks_;
};

class HandlersTest : public ::testing::Test {
 protected:
  ~HandlersTest() override {
    service_.end_calls();
    service_.stop();
  }
  static v1::SubmitJobRequest request(const std::string& name) {
    v1::SubmitJobRequest request;
    request.mutable_spec()->set_name(name);
    request.mutable_spec()->mutable_run()->mutable_training()->set_steps(1);
    return request;
  }
  grpc::Status submit(const v1::SubmitJobRequest& request, v1::SubmitJobResponse* response) {
    const auto door = std::make_shared<WaitingDoor>();
    const auto call = service_.submit_job(caller_, request, response);
    call->begin(door);
    return door->wait();
  }

  test::TempFolder folder_;
  FakePlan plan_;
  OpenJobStore store_{folder_ / "journal", {folder_ / "jobs"}};
  FakeAdmission admission_{plan_, folder_.path()};
  StateDir state_{folder_ / "state"};
  JobServiceImpl service_{store_, admission_, state_};
  const Caller caller_{"192.0.2.7", "somebody", "", Identity::admin()};
};

TEST_F(HandlersTest, AnswersComeByTheDoorThatTheCallCameBy) {
  v1::SubmitJobResponse response;
  const grpc::Status status = submit(request("a"), &response);
  ASSERT_TRUE(status.ok()) << status.error_message();
  EXPECT_EQ(response.job().name(), "jobs/a");
  v1::GetJobRequest get;
  get.set_name("a");
  EXPECT_EQ(service_.get_job(get).job().name(), "jobs/a");
  get.set_name("b");
  EXPECT_THROW(service_.get_job(get), NotFound);
  EXPECT_EQ(submit(request("a/b"), &response).error_code(), grpc::StatusCode::INVALID_ARGUMENT);
}

TEST_F(HandlersTest, ACallIsToldOneEndThoughItsClientGoesWhenTheServiceStops) {
  service_.end_calls();
  v1::SubmitJobResponse response;
  const v1::SubmitJobRequest late = request("late");
  const auto door = std::make_shared<WaitingDoor>();
  const auto call = service_.submit_job(caller_, late, &response);
  call->begin(door);
  call->cancel();
  EXPECT_EQ(door->wait().error_code(), grpc::StatusCode::UNAVAILABLE);
  EXPECT_EQ(door->ends(), 1);
}

TEST_F(HandlersTest, AStreamSendsOneAtATimeAndEndsWithItsClient) {
  v1::SubmitJobResponse submitted;
  ASSERT_TRUE(submit(request("a"), &submitted).ok());
  v1::WatchJobRequest watch;
  watch.set_name("a");
  const auto sink = std::make_shared<SlowSink>();
  const auto stream = service_.watch_job(caller_, watch);
  stream->open(sink);
  ASSERT_TRUE(test::eventually([&] { return sink->sent() == 1; }));
  EXPECT_EQ(sink->event().job().state(), v1::JOB_STATE_QUEUED);
  v1::CancelJobRequest cancel;
  cancel.set_name("a");
  EXPECT_EQ(service_.cancel_job(caller_, cancel).job().state(), v1::JOB_STATE_CANCELLED);
  std::this_thread::sleep_for(20ms);
  EXPECT_EQ(sink->sent(), 1) << "the first is still on its way";
  EXPECT_FALSE(sink->ended());
  stream->sent(true);
  ASSERT_TRUE(test::eventually([&] { return sink->sent() == 2; }));
  EXPECT_EQ(sink->event().job().state(), v1::JOB_STATE_CANCELLED);
  stream->cancel();
  stream->sent(false);
  ASSERT_TRUE(test::eventually([&] { return sink->ended().has_value(); }));
  EXPECT_EQ(sink->ended()->error_code(), grpc::StatusCode::CANCELLED);
}

TEST_F(HandlersTest, AHandlerReadsWhatAClientStreams) {
  UploadStore uploads({folder_ / "blobs", with_upload_defaults({})});
  const NoRuns runs;
  UploadServiceImpl service(uploads, runs, {});
  SentChunks nothing;
  EXPECT_THROW(service.write_upload(caller_, nothing), InvalidArgument);
  v1::WriteUploadRequest first;
  first.set_upload("uploads/none");
  SentChunks unknown({first});
  EXPECT_THROW(service.write_upload(caller_, unknown), NotFound);
}

}  // namespace
}  // namespace meshloom::control
