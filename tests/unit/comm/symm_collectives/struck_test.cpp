// SPDX-License-Identifier: Apache-2.0
// A rank that is killed or stopped in the middle of a collective: the others hear of it, by name.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <functional>
#include <thread>

#include "daemon/comm/exposure.h"
#include "daemon/comm/mesh/local_bootstrap.h"
#include "tests/unit/comm/comm_fixture.h"
#include "tests/unit/comm/symm_mem/shared_verdict.h"

namespace meshloom::comm {
namespace {

using namespace std::chrono_literals;
using testing::files_in_shared_memory;
using ::testing::HasSubstr;
using testing::make_group;
using testing::SharedVerdict;
using testing::view_of;

constexpr int kRanks = 3;
constexpr std::int64_t kElements = 3'000'000;  // many slices through staging memory

struct Kind {
  const char* name;
  std::function<WorkPtr(ProcessGroup&, std::vector<std::vector<float>>&)> start;
};

std::vector<TensorView> views_of(std::vector<std::vector<float>>& all) {
  std::vector<TensorView> views;
  for (auto& one : all) views.push_back(view_of(one));
  return views;
}

const Kind kKinds[] = {
    {"all_reduce", [](ProcessGroup& group,
                      auto& data) { return group.all_reduce(view_of(data[0]), ReduceOp::kSum); }},
    {"reduce_scatter",
     [](ProcessGroup& group, auto& data) {
       const auto views = views_of(data);
       return group.reduce_scatter(views[static_cast<std::size_t>(group.rank())], views,
                                   ReduceOp::kSum);
     }},
    {"all_gather",
     [](ProcessGroup& group, auto& data) {
       const auto views = views_of(data);
       return group.all_gather(views, views[static_cast<std::size_t>(group.rank())]);
     }},
    {"all_to_all",
     [](ProcessGroup& group, auto& data) {
       const auto views = views_of(data);
       return group.all_to_all(views, views);
     }},
    {"send_recv",
     [](ProcessGroup& group, auto& data) {
       const auto views = views_of(data);
       return group.send_recv(views, views);
     }},
    {"scatter",
     [](ProcessGroup& group, auto& data) {
       const auto views = views_of(data);
       return group.scatter(views[static_cast<std::size_t>(group.rank())], views, 1);
     }},
    {"gather",
     [](ProcessGroup& group, auto& data) {
       const auto views = views_of(data);
       return group.gather(views, views[static_cast<std::size_t>(group.rank())], 1);
     }},
    {"broadcast",
     [](ProcessGroup& group, auto& data) { return group.broadcast(view_of(data[0]), 1); }},
    // Counted as an all_gather; of a rank that shows two of its tensors.
    {"all_gather",
     [](ProcessGroup& group, auto& data) -> WorkPtr {
       const TensorView views[] = {view_of(data[0]), view_of(data[1])};
       return expose(group, CollectiveKind::kAllGather, views, 0);
     }},
    {"barrier", [](ProcessGroup& group, auto&) { return group.barrier(); }},
};

/// Rank 1 begins the collective, does a few steps of it, and strikes itself. Rank 0 tells.
int strike(const Kind& kind, int signal, std::chrono::milliseconds timeout,
           SharedVerdict& verdict) {
  return run_local_ranks(kRanks,
                         [&](RankRuntime& runtime) {
                           const auto group = make_group(runtime, timeout);
                           const auto pids = runtime.bootstrap().exchange(std::to_string(getpid()));
                           std::vector<std::vector<float>> data(
                               kRanks,
                               std::vector<float>(static_cast<std::size_t>(kElements), 1.0f));
                           group->barrier()->wait_host();
                           if (group->rank() == 1) {
                             // Of a barrier there is no middle: the others wait for this rank.
                             const bool begin = std::string(kind.name) != "barrier";
                             const WorkPtr work = begin ? kind.start(*group, data) : nullptr;
                             for (int i = 0; begin && i < 3; ++i) work->poll();
                             verdict->struck_at = SharedVerdict::now();
                             raise(signal);
                             std::_Exit(0);  // after SIGCONT
                           }
                           try {
                             kind.start(*group, data)->wait_host();
                           } catch (const Error& error) {
                             if (group->rank() == 0) verdict.hear(error);
                           }
                           if (group->rank() == 2 && signal == SIGSTOP) {
                             std::this_thread::sleep_for(200ms);
                             kill(std::stoi(pids[1]), SIGCONT);
                           }
                           return 0;
                         },
                         100s, {});
}

TEST(StruckCollective, AKilledRankIsNamedAtOnce) {
  const auto before = files_in_shared_memory();
  for (const Kind& kind : kKinds) {
    SharedVerdict verdict;
    EXPECT_EQ(strike(kind, SIGKILL, 20s, verdict), 128 + SIGKILL) << kind.name;
    EXPECT_STREQ(verdict->reason, "SYMM_MEM_PEER_GONE") << kind.name;
    EXPECT_THAT(std::string(verdict->text), HasSubstr(kind.name));
    EXPECT_THAT(std::string(verdict->text), HasSubstr("rank 1 (pid ")) << kind.name;
    EXPECT_THAT(std::string(verdict->text), HasSubstr("root cause: rank 1 ")) << kind.name;
    EXPECT_LT(verdict.delay(), 1s) << kind.name;
  }
  EXPECT_EQ(files_in_shared_memory(), before);
}

TEST(StruckCollective, AStoppedRankIsToldApart) {
  const auto before = files_in_shared_memory();
  for (const Kind& kind : kKinds) {
    SharedVerdict verdict;
    EXPECT_EQ(strike(kind, SIGSTOP, 1500ms, verdict), 0) << kind.name;
    EXPECT_STREQ(verdict->reason, "COLLECTIVE_TIMEOUT") << kind.name;
    EXPECT_THAT(std::string(verdict->text), HasSubstr("rank 1: its process")) << kind.name;
    EXPECT_THAT(std::string(verdict->text), HasSubstr("is stopped (SIGSTOP")) << kind.name;
    EXPECT_THAT(std::string(verdict->text), HasSubstr("root cause: rank 1 ")) << kind.name;
    // The deadline, and what else is allowed until the others know.
    EXPECT_LT(verdict.delay(), 2s) << kind.name;
  }
  EXPECT_EQ(files_in_shared_memory(), before);
}

}  // namespace
}  // namespace meshloom::comm
