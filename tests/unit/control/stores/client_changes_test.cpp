// SPDX-License-Identifier: Apache-2.0
// JobStore: the one way of all changes that clients make, and how a job gets its name.
#include <filesystem>
#include <fstream>
#include <functional>
#include <future>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "tests/support/reason_of.h"
#include "tests/unit/control/stores/job_store_fixture.h"

namespace meshloom::control {
namespace {

using test::reason_of;

class ClientChangesTest : public JobStoreTest {
 protected:
  static v1::Job edit_steps(JobStore& store, const std::string& id, std::int64_t steps) {
    v1::JobSpec before = store.get(id).spec();
    *before.mutable_run() = store.get(id).resolved();
    v1::JobSpec after = before;
    after.mutable_run()->mutable_training()->set_steps(steps);
    return store.edit(id, before, after, {});
  }
};

/// Holds the ledger's thread up, and with it the stores behind this one.
class GateStore final : public JournaledStore {
 public:
  void snapshot(const Ledger::Visit&) const override {}
  void on_durable(Ledger::Ticket) override { const std::lock_guard lock(gate); }

  std::mutex gate;

 private:
  void apply(const v1::JournalRecord&) override {}
  void settle_after_restart() override {}
};

/// Each way in which a client changes a job, in an order in which all are taken.
struct ClientChange {
  const char* name;
  std::function<v1::Job(JobStore& store, const RequestKey& key)> call;
};
const std::vector<ClientChange>& client_changes() {
  static const std::vector<ClientChange> changes = {
      {"label",
       [](JobStore& store, const RequestKey& key) {
         JobStore::Labels labels;
         labels["team"] = "x";
         return store.label("a", labels, {}, key);
       }},
      {"move",
       [](JobStore& store, const RequestKey& key) {
         return store.move("a", JobStore::Place::kAfter, "b", key);
       }},
      {"pause", [](JobStore& store,
                   const RequestKey& key) { return store.pause("a", v1::PAUSE_CODE_CLIENT, key); }},
      {"resume", [](JobStore& store, const RequestKey& key) { return store.resume("a", key); }},
      {"release",
       [](JobStore& store, const RequestKey& key) {
         store.hold("a", v1::HOLD_CODE_UNSPECIFIED, "for a test");
         return store.release("a", key);
       }},
      {"cancel", [](JobStore& store, const RequestKey& key) { return store.cancel("a", key); }}};
  return changes;
}

TEST_F(ClientChangesTest, ARepeatOfAnyChangeIsAnsweredAndChangesNothing) {
  const auto store = open();
  for (const char* id : {"a", "b"}) submit(*store, id);
  for (const auto& [name, call] : client_changes()) {
    const v1::Job before = store->get("a");
    const v1::Job first = call(*store, key(name, "a"));
    EXPECT_GT(first.revision(), before.revision()) << name;
    const std::int64_t told = store->get("a").revision();
    if (std::string(name) == "release") continue;  // its call holds the job first
    EXPECT_EQ(call(*store, key(name, "a")).SerializeAsString(), first.SerializeAsString()) << name;
    EXPECT_EQ(store->get("a").revision(), told) << name;
    EXPECT_EQ(reason_of([&] { call(*store, key(name, "b")); }), "REQUEST_ID_REUSED") << name;
  }
}

TEST_F(ClientChangesTest, AChangeThatIsRefusedLeavesNothing) {
  const auto store = open();
  submit(*store, "a");
  store->cancel("a", {});
  const auto size = [&] { return std::filesystem::file_size(journal()); };
  const std::int64_t revision = store->get("a").revision();
  const std::uintmax_t before = size();
  for (const auto& [name, call] : client_changes()) {
    if (std::string(name) == "label" || std::string(name) == "cancel") continue;  // are taken
    EXPECT_NE(reason_of([&] { call(*store, key(name, "a")); }), "") << name;
    EXPECT_FALSE(store->find_request(key(name, "a"))) << name;
  }
  EXPECT_EQ(store->get("a").revision(), revision);
  EXPECT_EQ(size(), before);
}

TEST_F(ClientChangesTest, AChangeWaitsForAnEditOfTheJobThatIsBeingWritten) {
  GateStore first;
  JobStore store(options());
  const auto ledger = open_ledger(journal(), {&first, &store});
  submit(store, "a");
  const auto size = [&] { return std::filesystem::file_size(journal()); };
  std::unique_lock gate(first.gate);
  const std::uintmax_t before = size();
  auto edit = std::async(std::launch::async, [&] { edit_steps(store, "a", 20); });
  while (size() == before) std::this_thread::yield();
  auto cancel = std::async(std::launch::async, [&] { return store.cancel("a", {}); });
  EXPECT_EQ(cancel.wait_for(std::chrono::milliseconds(200)), std::future_status::timeout);
  EXPECT_EQ(store.get("a").pending_state(), v1::JOB_STATE_UNSPECIFIED) << "it has no effect yet";
  gate.unlock();
  edit.get();
  EXPECT_EQ(cancel.get().state(), v1::JOB_STATE_CANCELLED);
  EXPECT_EQ(store.get("a").edits_size(), 1);
}

TEST_F(ClientChangesTest, NoJobIsNamedAsAFolderThatIsThere) {
  const auto store = open();
  for (const char* name : {"taken", "job-1", "job-3"})
    std::filesystem::create_directories(folder_ / "jobs" / name);
  EXPECT_EQ(reason_of([&] { store->check_submission(spec("taken")); }), "JOB_EXISTS");
  EXPECT_EQ(reason_of([&] { submit(*store, "taken"); }), "JOB_EXISTS");
  EXPECT_EQ(submit(*store, "").name(), "jobs/job-2");
  EXPECT_EQ(submit(*store, "job-4").name(), "jobs/job-4");
  EXPECT_EQ(submit(*store, "").name(), "jobs/job-5") << "the third is a folder, the fourth a job";
}

TEST_F(ClientChangesTest, JobsThatAreSubmittedAtOnceGetNamesAndPlacesOfTheirOwn) {
  constexpr int kThreads = 8;
  const auto store = open();
  std::vector<std::future<v1::Job>> jobs;
  for (int i = 0; i < kThreads; ++i)
    jobs.push_back(std::async(std::launch::async, [&] { return submit(*store, ""); }));
  std::set<std::string> names;
  std::set<std::int64_t> places;
  for (auto& job : jobs) {
    const v1::Job submitted = job.get();
    names.insert(submitted.name());
    places.insert(submitted.queue_place());
    EXPECT_EQ(store->get(submitted.spec().name()).SerializeAsString(),
              submitted.SerializeAsString());
  }
  EXPECT_EQ(names.size(), static_cast<std::size_t>(kThreads));
  EXPECT_EQ(places.size(), static_cast<std::size_t>(kThreads));
}

}  // namespace
}  // namespace meshloom::control
