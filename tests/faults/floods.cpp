// SPDX-License-Identifier: Apache-2.0
// Floods of one daemon that trains: see README.md.
#include <fmt/format.h>

#include <atomic>
#include <fstream>
#include <mutex>
#include <thread>

#include "tests/e2e/daemon_fixture.h"
#include "tests/e2e/flood.h"
#include "tests/e2e/run_client.h"
#include "tests/e2e/storms.h"
#include "tests/support/raw_http2.h"
#include "v1/checkpoint_service.grpc.pb.h"
#include "v1/generate_service.grpc.pb.h"
#include "v1/plan_service.grpc.pb.h"

namespace meshloom::e2e {
namespace {

namespace fs = std::filesystem;

/// Of one process.
struct Figures {
  int descriptors = 0;
  int threads = 0;
  int resident_mib = 0;

  void raise_to(const Figures& other) {
    descriptors = std::max(descriptors, other.descriptors);
    threads = std::max(threads, other.threads);
    resident_mib = std::max(resident_mib, other.resident_mib);
  }
};

Figures figures_of(pid_t pid) {
  const fs::directory_iterator open(fmt::format("/proc/{}/fd", pid));
  return {static_cast<int>(std::distance(begin(open), end(open))),
          static_cast<int>(status_number(pid, "Threads")),
          static_cast<int>(status_number(pid, "VmRSS") / 1024)};
}

/// The first flood prints the head of the table.
void print_row(const std::string& flood, const std::string& seen, const Figures& before,
               const Figures& most, const Figures& after) {
  static std::once_flag head;
  std::call_once(head, [] {
    fmt::print("rank 0: before / most / after\n{:<28} {:<34} {:>18} {:>14} {:>16}\n", "flood",
               "seen", "descriptors", "threads", "resident MiB");
  });
  const auto three = [](int a, int b, int c) { return fmt::format("{} / {} / {}", a, b, c); };
  fmt::print("{:<28} {:<34} {:>18} {:>14} {:>16}\n", flood, seen,
             three(before.descriptors, most.descriptors, after.descriptors),
             three(before.threads, most.threads, after.threads),
             three(before.resident_mib, most.resident_mib, after.resident_mib));
  std::fflush(stdout);
}

class Floods : public DaemonTest {
 protected:
  void SetUp() override {
    start();
    submit({.steps = 3, .checkpoint_interval = 3}, "short");
    submit({.steps = 1'000'000, .checkpoint_interval = 200}, "long");
    ASSERT_TRUE(reaches_step("long", 400, 600s));  // a daemon under a sanitizer takes its time
    before_ = figures_of(pids_[0]);
  }

  /// Samples rank 0 for so long, or until the condition holds.
  template <typename Condition>
  bool watch(std::chrono::milliseconds time, Condition condition) {
    return eventually(time, [&] {
      most_.raise_to(figures_of(pids_[0]));
      return condition();
    });
  }

  /// The job has gone on, a new client is served, nothing is left behind.
  void expect_as_before(const std::string& flood, const std::string& seen) {
    EXPECT_EQ(client({"status", "--wait", "120"}).exit_code, 0);
    const int step = job("long")["step"];
    EXPECT_TRUE(reaches_step("long", step + 20));
    EXPECT_EQ(job("long")["state"], "running");
    EXPECT_TRUE(eventually(
        60s, [&] { return figures_of(pids_[0]).descriptors <= before_.descriptors + 8; }));
    const Figures after = figures_of(pids_[0]);
    print_row(flood, seen, before_, most_, after);
    EXPECT_LE(after.threads, before_.threads + 40);
    EXPECT_LE(after.resident_mib, before_.resident_mib + 200);
  }

  /// Opens `count` streams that nobody reads, ten to a connection, and waits until those with a
  /// place have been cut off: as many newcomers as have places must be served within a minute.
  template <typename Open>
  int hold_unread(int count, Open open) {
    std::vector<std::unique_ptr<grpc::ClientContext>> contexts;
    using Reader = decltype(open(own_channel(address_), nullptr));
    std::vector<Reader> readers;
    std::shared_ptr<grpc::Channel> channel;
    for (int i = 0; i < count; ++i) {
      if (i % 10 == 0) channel = own_channel(address_);
      contexts.push_back(std::make_unique<grpc::ClientContext>());
      readers.push_back(open(channel, contexts.back().get()));
    }
    int tries = 0;
    const bool served = watch(90s, [&] {
      ++tries;
      grpc::ClientContext context;
      context.set_deadline(std::chrono::system_clock::now() + 2s);
      const auto reader = open(own_channel(address_), &context);
      return read_one(reader.get());
    });
    EXPECT_TRUE(served) << "no place was given back";
    for (auto& context : contexts) context->TryCancel();
    for (auto& reader : readers) {
      while (read_one(reader.get())) {
      }
      reader->Finish();
    }
    return tries;
  }
  template <typename Response>
  static bool read_one(grpc::ClientReader<Response>* reader) {
    Response response;
    return reader->Read(&response);
  }

  Figures before_, most_;
};

TEST_F(Floods, Connections) {
  int refused = 0;
  int size = 0;
  {
    Flood flood(address_);
    flood.connect(5000);
    size = flood.size();
    watch(5s, [] { return false; });
    refused = flood.refused();
  }
  EXPECT_GT(refused, 0);
  expect_as_before("5,000 silent connections", fmt::format("{} of {} refused", refused, size));
}

TEST_F(Floods, Watchers) {
  v1::WatchJobRequest request;
  request.set_name("long");
  const int tries = hold_unread(300, [&](const auto& channel, grpc::ClientContext* context) {
    return v1::JobService::NewStub(channel)->WatchJob(context, request);
  });
  expect_as_before("300 watchers that never read", fmt::format("a newcomer served, try {}", tries));
}

TEST_F(Floods, Downloads) {
  v1::ReadCheckpointRequest request;
  request.set_name("checkpoints/short/step-3");
  const int tries = hold_unread(60, [&](const auto& channel, grpc::ClientContext* context) {
    return v1::CheckpointService::NewStub(channel)->ReadCheckpoint(context, request);
  });
  expect_as_before("60 downloads that never read", fmt::format("a newcomer served, try {}", tries));
}

TEST_F(Floods, CancelledCalls) {
  constexpr int kCalls = 20'000;
  constexpr int kThreads = 8;
  std::atomic<int> next{0};
  std::atomic<int> ended_early{0};
  const auto call = [&](int i, grpc::ClientContext* context) {
    const auto channel = grpc::CreateChannel(address_, grpc::InsecureChannelCredentials());
    if (i % 4 == 0) {
      v1::WatchJobRequest request;
      request.set_name("long");
      return v1::JobService::NewStub(channel)->WatchJob(context, request)->Finish();
    }
    if (i % 4 == 1) {
      v1::GenerateRequest request;
      request.set_job("long");
      request.set_prompt("the ");
      request.mutable_params()->set_max_tokens(20);
      return v1::GenerateService::NewStub(channel)->Generate(context, request)->Finish();
    }
    if (i % 4 == 2) {
      v1::ListWorkersResponse response;
      return v1::WorkerService::NewStub(channel)->ListWorkers(context, {}, &response);
    }
    v1::ListJobsResponse response;
    return v1::JobService::NewStub(channel)->ListJobs(context, {}, &response);
  };
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t)
    threads.emplace_back([&] {
      for (int i = next++; i < kCalls; i = next++) {
        grpc::ClientContext context;
        context.set_deadline(std::chrono::system_clock::now() +
                             std::chrono::microseconds(100 + i % 50 * 300));
        if (!call(i, &context).ok()) ++ended_early;
      }
    });
  watch(900s, [&] { return next >= kCalls; });
  for (auto& thread : threads) thread.join();
  EXPECT_GT(ended_early, kCalls / 10);
  expect_as_before("20,000 cancelled calls", fmt::format("{} ended early", ended_early.load()));
}

TEST_F(Floods, UnaryCalls) {
  v1::ListCheckpointsRequest list;
  list.set_verify(true);
  v1::EstimatePlanRequest estimate;
  estimate.mutable_model()->set_preset("byte_gpt_tiny");
  estimate.mutable_query()->mutable_mesh()->set_tp(1 << 14);
  v1::DeleteCheckpointRequest remove;
  remove.set_name("checkpoints/long/step-1");
  int ended = 0;
  std::chrono::milliseconds longest{0};
  const int step = job("long")["step"];
  {
    const Storm<v1::CheckpointService, v1::ListCheckpointsRequest, v1::ListCheckpointsResponse>
        lists(address_, 300, list,
              [](auto& stub, auto... call) { stub.async()->ListCheckpoints(call...); });
    const Storm<v1::PlanService, v1::EstimatePlanRequest, v1::EstimatePlanResponse> estimates(
        address_, 200, estimate,
        [](auto& stub, auto... call) { stub.async()->EstimatePlan(call...); });
    const Storm<v1::CheckpointService, v1::DeleteCheckpointRequest, v1::DeleteCheckpointResponse>
        removals(address_, 200, remove,
                 [](auto& stub, auto... call) { stub.async()->DeleteCheckpoint(call...); });
    const auto stub = v1::JobService::NewStub(own_channel(address_));
    longest = longest_answer(100, [&] {
      most_.raise_to(figures_of(pids_[0]));
      return is_answered(*stub, "long");
    });
    EXPECT_LT(longest, 1s);
    EXPECT_EQ(client({"status"}).exit_code, 0);
    EXPECT_TRUE(reaches_step("long", step + 20)) << "beside the storm";
    ended = lists.ended() + estimates.ended() + removals.ended();
  }
  expect_as_before("700 calls that read and search",
                   fmt::format("GetJob in {} ms, {} ended", longest.count(), ended));
}

TEST_F(Floods, Readers) {
  std::ofstream(data_ / "large.json")
      << R"({"model_type": "gpt2", "n_layer": 4, "n_head": 6, "n_embd": 384,
    "n_positions": 64, "vocab_size": 27000})";
  EXPECT_EQ(client({"job", "pause", "long"}).exit_code, 0);
  RunClient run(address_);
  v1::RunSpec spec;
  spec.set_name("large");
  spec.mutable_config()->mutable_model()->set_config("large.json");
  spec.mutable_config()->mutable_training()->set_seq_len(16);
  ASSERT_TRUE(run.create(spec));
  v1::GetParametersRequest embedding;
  embedding.add_names("transformer.wte.weight");
  const Outcome values = run.run(&RunClient::Runs::GetParameters, embedding);
  ASSERT_TRUE(values.ok()) << values.message;
  before_ = most_ = figures_of(pids_[0]);
  v1::ReadResultRequest request;
  request.set_name(values.operation.name());
  const int tries = hold_unread(48, [&](const auto& channel, grpc::ClientContext* context) {
    return v1::OperationService::NewStub(channel)->ReadResult(context, request);
  });
  EXPECT_LE(most_.resident_mib, before_.resident_mib + 300) << "they read one copy";
  EXPECT_TRUE(run.close().ok());
  EXPECT_EQ(client({"job", "resume", "long"}).exit_code, 0);
  EXPECT_TRUE(reaches("long", "running"));
  expect_as_before("48 readers of a large result", fmt::format("a newcomer served, try {}", tries));
}

TEST_F(Floods, Strangers) {
  shut_down();
  give_each_rank_a_host();
  start(2, {"--mpi-interface", "lo"});
  ASSERT_TRUE(reaches("long", "running"));
  before_ = figures_of(pids_[0]);
  const std::vector<int> ports = ports_for_ranks();
  ASSERT_EQ(ports.size(), 2u);
  std::int64_t mib = 0;
  {
    const e2e::Strangers strangers(ports, 8);
    watch(40s, [] { return false; });
    mib = strangers.bytes() >> 20;
  }
  EXPECT_EQ(daemon_log().find("nothing was heard"), std::string::npos) << daemon_log();
  expect_as_before("8 strangers at the ranks' ports", fmt::format("{} MiB sent", mib));
}

TEST_F(Floods, RawHttp2) {
  const std::string method = "/meshloom.v1.JobService/ListJobs";
  const auto stub = v1::JobService::NewStub(channel_from("127.0.0.2", port()));
  std::int64_t calls = 0, bytes = 0;
  int ended = 0, spared = 0;
  std::atomic<bool> over{false};
  std::thread hostile([&] {
    const auto end = std::chrono::steady_clock::now() + 30s;
    while (std::chrono::steady_clock::now() < end) {
      test::RawHttp2 client(port());
      if (client.ends_within(20ms)) continue;  // none is taken from here yet
      const bool resets = ended % 2 == 0;
      if (resets ? test::reset_rapidly(client, method, 20s, &calls)
                 : test::continue_headers(client, method, 20s, &bytes))
        ++ended;
      else
        ++spared;
    }
    over = true;
  });
  // Another address is served all the time.
  std::chrono::milliseconds longest{0};
  while (!over)
    longest = std::max(longest, longest_answer(1, [&] {
                         most_.raise_to(figures_of(pids_[0]));
                         return is_answered(*stub, "long");
                       }));
  hostile.join();
  EXPECT_GE(ended, 2) << "one of each kind";
  EXPECT_EQ(spared, 0) << "connections went on for 20 s";
  EXPECT_LT(longest, 3s) << "another client's GetJob";
  EXPECT_EQ(daemon_log().find("nothing was heard"), std::string::npos) << daemon_log();
  EXPECT_LE(most_.resident_mib, before_.resident_mib + 400);
  sleep_ms(6000);  // until memory is given back
  EXPECT_LE(figures_of(pids_[0]).resident_mib, before_.resident_mib + 100);
  expect_as_before("resets and endless headers, 30 s",
                   fmt::format("{} cut off, GetJob in {} ms", ended, longest.count()));
}

}  // namespace
}  // namespace meshloom::e2e
