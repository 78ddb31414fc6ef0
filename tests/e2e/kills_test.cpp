// SPDX-License-Identifier: Apache-2.0
// kill -9 of everything, again and again, while clients upload, create models and step a run: what
// was acknowledged as durable is there afterwards, and everybody goes on from it.
#include <fmt/format.h>

#include <atomic>
#include <fstream>
#include <mutex>
#include <random>
#include <set>
#include <thread>

#include "daemon/base/crc32c.h"
#include "daemon/base/sha256.h"
#include "tests/e2e/daemon_fixture.h"
#include "tests/e2e/run_client.h"
#include "v1/model_service.grpc.pb.h"
#include "v1/upload_service.grpc.pb.h"

namespace meshloom::e2e {
namespace {

constexpr int kKills = 5, kKillSteps = 60, kStepsPerState = 4;
constexpr std::size_t kChunk = 1 << 20, kFileBytes = 24 << 20, kSegment = 4 << 20;

/// Where the daemon is now; clients outlive it.
class Place {
 public:
  void set(const std::string& address) {
    const std::lock_guard lock(mutex_);
    address_ = address;
  }
  std::shared_ptr<grpc::Channel> channel() const {
    const std::lock_guard lock(mutex_);
    return grpc::CreateChannel(address_, grpc::InsecureChannelCredentials());
  }
  std::string address() const {
    const std::lock_guard lock(mutex_);
    return address_;
  }

 private:
  mutable std::mutex mutex_;
  std::string address_;
};

/// With the name of a client, and an end.
std::unique_ptr<grpc::ClientContext> call_of(const char* client) {
  auto context = std::make_unique<grpc::ClientContext>();
  context->AddMetadata("meshloom-client", client);
  context->set_deadline(std::chrono::system_clock::now() + 20s);
  return context;
}

std::string random_bytes(std::uint64_t seed, std::size_t size) {
  std::mt19937_64 random(seed);
  std::string bytes(size, '\0');
  for (std::size_t i = 0; i + 8 <= size; i += 8) {
    const std::uint64_t value = random();
    std::copy_n(reinterpret_cast<const char*>(&value), 8, &bytes[i]);
  }
  return bytes;
}

/// Sends one file after the other until it is told to stop.
class Uploader {
 public:
  explicit Uploader(const Place& place) : place_(place) {}

  void run(const std::atomic<bool>& stop) {
    for (int number = 1; !stop; ++number) send(number, stop);
  }

  /// What was acknowledged, against what the daemon says now.
  void check() const {
    const std::lock_guard lock(mutex_);
    const auto stub = v1::UploadService::NewStub(place_.channel());
    for (const auto& [name, committed] : acknowledged_) {
      v1::GetUploadRequest request;
      request.set_name(name);
      v1::GetUploadResponse response;
      const auto status = stub->GetUpload(call_of("uploader").get(), request, &response);
      ASSERT_TRUE(status.ok()) << name << ": " << status.error_message();
      EXPECT_GE(response.upload().committed_bytes(), committed) << name;
      EXPECT_TRUE(finished_.count(name) == 0 ||
                  response.upload().state() == v1::UPLOAD_STATE_COMPLETE)
          << name;
    }
  }
  std::size_t finished() const {
    const std::lock_guard lock(mutex_);
    return finished_.size();
  }
  int resumed() const { return resumed_; }

 private:
  void send(int number, const std::atomic<bool>& stop) {
    const std::string bytes = random_bytes(static_cast<std::uint64_t>(number), kFileBytes);
    base::Sha256 digest;
    digest.update(std::as_bytes(std::span(bytes)));
    v1::CreateUploadRequest create;
    create.set_request_id(fmt::format("file-{}", number));
    create.set_file_name(fmt::format("file-{}.bin", number));
    create.set_size_bytes(static_cast<std::int64_t>(bytes.size()));
    create.set_sha256(digest.hex());
    bool complete = false;
    for (int attempt = 0; !complete && !stop; ++attempt) {
      const auto stub = v1::UploadService::NewStub(place_.channel());
      v1::CreateUploadResponse made;  // a repeat tells the committed size
      if (!stub->CreateUpload(call_of("uploader").get(), create, &made).ok()) {
        std::this_thread::sleep_for(50ms);
        continue;
      }
      if (attempt > 0 && made.upload().committed_bytes() > 0) ++resumed_;
      acknowledge(made.upload());
      complete = go_on(*stub, made.upload(), bytes, stop);
    }
  }

  bool go_on(v1::UploadService::Stub& stub, const v1::Upload& upload, const std::string& bytes,
             const std::atomic<bool>& stop) {
    auto at = static_cast<std::size_t>(upload.committed_bytes());
    while (at < bytes.size() && !stop) {
      const auto context = call_of("uploader");
      v1::WriteUploadResponse written;
      const auto stream = stub.WriteUpload(context.get(), &written);
      const std::size_t end = std::min(at + kSegment, bytes.size());
      for (; at < end; at += kChunk) {
        v1::WriteUploadRequest chunk;
        chunk.set_upload(upload.name());
        chunk.set_write_offset(static_cast<std::int64_t>(at));
        chunk.set_data(bytes.substr(at, kChunk));
        chunk.set_crc32c(base::crc32c(std::as_bytes(std::span(chunk.data()))));
        if (!stream->Write(chunk)) break;
        std::this_thread::sleep_for(10ms);
      }
      stream->WritesDone();
      if (!stream->Finish().ok()) return false;
      v1::Upload told = upload;
      told.set_committed_bytes(written.committed_bytes());
      acknowledge(told);
    }
    v1::FinishUploadRequest finish;
    finish.set_name(upload.name());
    v1::FinishUploadResponse finished;
    if (!stub.FinishUpload(call_of("uploader").get(), finish, &finished).ok()) return false;
    const std::lock_guard lock(mutex_);
    finished_.insert(upload.name());
    return true;
  }

  void acknowledge(const v1::Upload& upload) {
    const std::lock_guard lock(mutex_);
    std::int64_t& committed = acknowledged_[upload.name()];
    EXPECT_GE(upload.committed_bytes(), committed) << upload.name() << ": less than was told";
    committed = std::max(committed, upload.committed_bytes());
  }

  const Place& place_;
  mutable std::mutex mutex_;
  std::map<std::string, std::int64_t> acknowledged_;  ///< bytes, by name
  std::set<std::string> finished_;
  std::atomic<int> resumed_{0};
};

/// Creates models under new names, each with one request id however often it is sent.
class ModelMaker {
 public:
  explicit ModelMaker(const Place& place) : place_(place) {}

  void run(const std::atomic<bool>& stop) {
    for (int number = 1; !stop;) {
      v1::CreateModelRequest request;
      request.set_request_id(fmt::format("model-{}", number));
      request.set_name(fmt::format("m{}", number));
      request.set_preset("byte_gpt_tiny");
      v1::CreateModelResponse response;
      const auto status = v1::ModelService::NewStub(place_.channel())
                              ->CreateModel(call_of("maker").get(), request, &response);
      std::this_thread::sleep_for(20ms);
      if (!status.ok()) {
        EXPECT_NE(status.error_code(), grpc::StatusCode::ALREADY_EXISTS)
            << "the repeat of a request is not another one";
        continue;
      }
      const std::lock_guard lock(mutex_);
      made_.insert(response.model().name());
      ++number;
    }
  }

  void check() const {
    const auto stub = v1::ModelService::NewStub(place_.channel());
    const std::lock_guard lock(mutex_);
    for (const std::string& name : made_) {
      v1::GetModelRequest request;
      request.set_name(name);
      v1::GetModelResponse response;
      EXPECT_TRUE(stub->GetModel(call_of("maker").get(), request, &response).ok()) << name;
    }
  }
  std::size_t made() const {
    const std::lock_guard lock(mutex_);
    return made_.size();
  }

 private:
  const Place& place_;
  mutable std::mutex mutex_;
  std::set<std::string> made_;
};

v1::RunSpec spec_of(const std::string& name) {
  v1::RunSpec spec;
  spec.set_name(name);
  v1::RunConfig& config = *spec.mutable_config();
  config.mutable_model()->set_preset("byte_gpt_tiny");
  config.mutable_mesh()->set_fsdp(2);
  config.mutable_plan()->set_dtype("float32");
  config.mutable_optimizer()->set_lr(3e-3);
  config.mutable_training()->set_seed(5);
  config.mutable_training()->set_seq_len(32);
  return spec;
}

v1::LossBatch batch_of(int step) {
  std::mt19937 random(static_cast<unsigned>(step) + 1);
  v1::LossBatch batch;
  batch.set_loss("cross_entropy");
  for (int i = 0; i < 3; ++i) {
    std::vector<int> tokens;
    for (int t = 0; t < 20; ++t) tokens.push_back(static_cast<int>(random() % 64) + i);
    *batch.add_data() = next_token_datum(tokens);
  }
  return batch;
}

/// Drives a run through all of its steps, whatever becomes of the daemon, and says after each state
/// how far it came.
class Driver {
 public:
  Driver(const Place& place, std::string run, std::string token)
      : place_(place), run_(std::move(run)), token_(std::move(token)) {}

  void run(const std::atomic<bool>& stop) {
    while (!done_ && !stop) {
      RunClient client(place_.address());
      client.name = run_;
      client.token = token_;
      if (begin(client)) go_on(client, stop);
      std::this_thread::sleep_for(30ms);
    }
  }

  /// The states that were acknowledged, and the step that the run would go on from.
  void check() const {
    const auto found = look();
    ASSERT_TRUE(found);
    const std::lock_guard lock(mutex_);
    std::set<std::string> there;
    for (const v1::SavedState& state : found->saved()) there.insert(state.name());
    for (const std::string& state : saved_) EXPECT_EQ(there.count(state), 1u) << state;
  }
  bool done() const { return done_; }
  int recoveries() const { return recoveries_; }

 private:
  std::optional<v1::Run> look() const {
    v1::GetRunRequest request;
    request.set_name(run_);
    v1::GetRunResponse response;
    const auto status = v1::RunService::NewStub(place_.channel())
                            ->GetRun(call_of("driver").get(), request, &response);
    return status.ok() ? std::optional(response.run()) : std::nullopt;
  }

  /// Takes epoch, number and step from the run once it has the ranks.
  bool begin(RunClient& client) {
    const auto seen = look();
    if (!seen || seen->state() != v1::RUN_STATE_READY) return false;
    client.epoch = seen->epoch();
    client.next_seq = seen->next_seq();
    step_ = static_cast<int>(seen->step());
    const std::lock_guard lock(mutex_);
    EXPECT_GE(step_, static_cast<int>(saved_.size()) * kStepsPerState) << "a saved state is lost";
    EXPECT_EQ(step_ % kStepsPerState, 0) << "the run goes on from what is no saved state";
    if (seen->epoch() != epoch_) ++recoveries_;
    epoch_ = seen->epoch();
    return true;
  }

  void go_on(RunClient& client, const std::atomic<bool>& stop) {
    while (step_ < kKillSteps) {
      if (stop) return;
      if (!client.forward_backward(batch_of(step_)).ok() || !client.optim_step().ok()) return;
      ++step_;
      std::this_thread::sleep_for(40ms);
      if (step_ % kStepsPerState != 0) continue;
      const Outcome saved = client.save_state(fmt::format("at-{}", step_));
      if (!saved.ok()) return;
      const std::lock_guard lock(mutex_);
      saved_.insert(saved.operation.result().saved_state().name());
    }
    done_ = true;
  }

  const Place& place_;
  const std::string run_, token_;
  mutable std::mutex mutex_;
  std::set<std::string> saved_;
  std::int64_t epoch_ = 1;
  int step_ = 0;
  std::atomic<int> recoveries_{0};
  std::atomic<bool> done_{false};
};

class KillsE2e : public DaemonTest {
 protected:
  std::string undisturbed_weights() {
    RunClient client(address_);
    EXPECT_TRUE(client.create(spec_of("undisturbed")));
    for (int step = 0; step < kKillSteps; ++step) {
      EXPECT_TRUE(client.forward_backward(batch_of(step)).ok());
      EXPECT_TRUE(client.optim_step().ok());
    }
    const std::string bytes = client.weights(state_);
    EXPECT_TRUE(client.close().ok());
    return bytes;
  }
};

TEST_F(KillsE2e, NothingAcknowledgedIsLostAndEverybodyGoesOn) {
  const auto seed = std::random_device()();
  fmt::print("the kills' seed is {}\n", seed);
  std::mt19937 random(seed);
  start();
  const std::string expected = undisturbed_weights();
  ASSERT_GT(expected.size(), 1000u);
  RunClient made(address_);
  ASSERT_TRUE(made.submit(spec_of("killed")).ok());
  Place place;
  place.set(address_);
  std::atomic<bool> stop{false};
  Uploader uploader(place);
  ModelMaker maker(place);
  Driver driver(place, made.name, made.token);
  std::vector<std::thread> clients;
  clients.emplace_back([&] { uploader.run(stop); });
  clients.emplace_back([&] { maker.run(stop); });
  clients.emplace_back([&] { driver.run(stop); });
  int kills = 0;
  for (; kills < kKills && !driver.done() && !HasFatalFailure(); ++kills) {
    std::this_thread::sleep_for(std::chrono::milliseconds(300 + random() % 1500));
    kill_everything();
    start();
    if (HasFatalFailure()) break;
    place.set(address_);
    uploader.check();
    maker.check();
    driver.check();
  }
  EXPECT_TRUE(eventually(90s, [&] { return driver.done(); })) << "the run did not come to its end";
  stop = true;
  for (std::thread& client : clients) client.join();
  ASSERT_TRUE(driver.done());
  EXPECT_GE(kills, 3);
  EXPECT_GE(driver.recoveries(), 1);
  EXPECT_GE(maker.made(), 1u);
  fmt::print(
      "{} kills; {} files sent, {} times on from what was committed; {} models; the run began "
      "anew {} times\n",
      kills, uploader.finished(), uploader.resumed(), maker.made(), driver.recoveries());
  RunClient client(address_);
  client.name = made.name;
  client.token = made.token;
  ASSERT_TRUE(client.wait_ready());
  EXPECT_TRUE(client.weights(state_) == expected);
  EXPECT_TRUE(client.close().ok());
  shut_down();
}

}  // namespace
}  // namespace meshloom::e2e
