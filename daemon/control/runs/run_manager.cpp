// SPDX-License-Identifier: Apache-2.0
#include "daemon/control/runs/run_manager.h"

#include <algorithm>
#include <charconv>
#include <set>
#include <string_view>

#include "daemon/base/as_error.h"
#include "daemon/base/given_number.h"
#include "daemon/base/timestamp.h"
#include "daemon/control/host/memory.h"
#include "daemon/control/net/secret.h"
#include "daemon/control/net/status.h"
#include "daemon/control/runs/run_token.h"
#include "daemon/control/stores/names.h"
#include "daemon/control/stores/page_room.h"
#include "daemon/control/stores/run_folders.h"
#include "kernels/base/log.h"

namespace meshloom::control {
namespace {

constexpr std::size_t kLargestRunSpec = 256 << 10;  // a run is stored and sent whole
constexpr std::size_t kMostEnded = 1000;            // runs without saved states that are kept
constexpr std::int64_t kLongestLease = 24 * 3600;
constexpr std::int64_t kLongestGap = 3600;
constexpr std::chrono::milliseconds kTick{200};  // leases and gaps are of seconds
constexpr int kTicksOfStates = 25;  // between two looks at their times to live and free memory

void check_seconds(const char* field, std::int64_t seconds, std::int64_t most) {
  if (seconds < 0 || seconds > most)
    base::refuse_field(field, "must be in [0, {}], got {}", most, seconds);
}

/// Waits for the ranks until the run or the daemon ends.
class WaitingRun final : public RanksTurn::Waiter {
 public:
  WaitingRun(const RunContext& context, const RunSession& run) : context_(context), run_(run) {}
  bool gives_up() override { return context_.stopping || run_.ended(); }

 private:
  const RunContext& context_;
  const RunSession& run_;
};

/// The one place that says who may `act` on a run without its token: its owner, and an admin; of
/// the admins' runs the client that made it.
void check_is_maker(const RunSession& run, const std::string& client, const Identity& by,
                    const char* act) {
  const std::string owner = run.ownership().owner;
  if (!owner.empty() && (by.is_admin() || owner == by.owner())) return;
  if (owner.empty() && by.is_admin() && run.client() == client) return;
  if (!by.is_admin())
    throw NotFound(fmt::format("run \"{}\" does not exist", run.id()), "RUN_NOT_FOUND",
                   {{"run", run.id()}});
  throw FailedPrecondition(
      fmt::format("run \"{}\" was made by client \"{}\", who alone may {} it; this is client "
                  "\"{}\"",
                  run.id(), run.client(), act, client),
      "RUN_OF_ANOTHER", {{"run", run.id()}, {"client", run.client()}});
}

void check_spec(const v1::RunSpec& spec) {
  if (!spec.name().empty() && parse_run_name(spec.name()) != spec.name())
    base::refuse_field("spec.name", "must not have a slash");
  if (!spec.has_config()) base::refuse_field("spec.config", "is missing: it says what to train");
  if (spec.ByteSizeLong() > kLargestRunSpec)
    base::refuse_field("spec.config", "the run takes {} bytes, at most {} are allowed",
                       spec.ByteSizeLong(), kLargestRunSpec);
  base::check_given_positive("spec.lease_seconds", spec.has_lease_seconds(), spec.lease_seconds(),
                             "600");
  check_seconds("spec.lease_seconds", spec.lease_seconds(), kLongestLease);
  check_seconds("spec.gap_timeout_seconds", spec.gap_timeout_seconds(), kLongestGap);
  if (spec.without_optimizer() && spec.state().empty())
    base::refuse_field("spec.without_optimizer", "is of a state: spec.state is empty");
}

}  // namespace

RunManager::RunManager(const RunServices& services, const WaitingMemory::Bounds& waiting)
    : operations_(services.limits), context_{services, operations_, WaitingMemory(waiting)} {
  sweep_run_folders(context_.state, context_.store);
  std::vector<v1::RunRecord> records;
  for (auto& [id, record] : context_.store.all()) records.push_back(std::move(record));
  std::stable_sort(records.begin(), records.end(), [](const auto& a, const auto& b) {
    return a.run().create_time() < b.run().create_time();
  });
  for (v1::RunRecord& record : records) {
    const std::string id = parse_run_name(record.run().name());
    const bool open = !has_ended(record.run());
    v1::RunRecord now =
        RunLifecycle::restarted(std::move(record), context_.store.newest_readable_state(id));
    if (open) context_.store.put_kept(now);
    add(std::move(now));
  }
  ticker_ = std::make_unique<Ticker>(kTick, [this] { tick(); });
}

RunManager::~RunManager() {
  request_stop();
  stop();
  ticker_.reset();
}

void RunManager::add(v1::RunRecord record) {
  const auto session = std::make_shared<RunSession>(context_, std::move(record));
  const std::lock_guard lock(mutex_);
  const std::int64_t number = next_number_++;
  by_id_[session->id()] = number;
  Item& item = items_[number];
  item.session = session;
  if (!session->ended()) item.thread = std::thread([this, session] { drive(session); });
}

void RunManager::drive(const SessionPtr& session) {
  {
    std::unique_lock lock(mutex_);
    started_changed_.wait(lock, [&] { return started_ || context_.stopping; });
  }
  const std::string name = run_resource(session->id());
  WaitingRun waiting(context_, *session);
  const Hold turn = context_.turn.acquire_when_woken(name, waiting);
  if (!turn) return;
  try {
    const auto memory = context_.budget.hold_run(session->resolved());
    session->drive();
  } catch (const std::exception& error) {
    spdlog::error("run {}: {}", session->id(), error.what());
    // One that the daemon's end has caught goes on with the next.
    if (!context_.stopping) session->give_up(base::as_error(std::current_exception()));
  }
}

void RunManager::start() {
  const std::lock_guard lock(mutex_);
  started_ = true;
  started_changed_.notify_all();
}

void RunManager::request_stop() {
  const std::lock_guard lock(mutex_);
  context_.stopping = true;
  started_changed_.notify_all();
  for (const auto& [number, item] : items_) item.session->wake();
  context_.turn.wake();
}

void RunManager::drain() {
  const std::string holder = context_.turn.holder();
  std::vector<SessionPtr> sessions;
  {
    const std::lock_guard lock(mutex_);
    for (const auto& [number, item] : items_)
      if (run_resource(item.session->id()) == holder) sessions.push_back(item.session);
  }
  for (const SessionPtr& session : sessions) session->drain();
}

void RunManager::stop() {
  const std::lock_guard one(joining_);
  std::vector<std::thread> threads;
  {
    const std::lock_guard lock(mutex_);
    for (auto& [number, item] : items_)
      if (item.thread.joinable()) threads.push_back(std::move(item.thread));
  }
  for (std::thread& thread : threads) thread.join();
}

RunManager::SessionPtr RunManager::find(const std::string& id) const {
  const std::lock_guard lock(mutex_);
  const auto found = by_id_.find(id);
  if (found == by_id_.end())
    throw NotFound(fmt::format("run \"{}\" does not exist", id), "RUN_NOT_FOUND", {{"run", id}});
  return items_.at(found->second).session;
}

std::string RunManager::free_id(const std::string& wanted) const {
  const std::lock_guard lock(mutex_);
  const auto taken = [&](const std::string& id) {
    return by_id_.count(id) > 0 || std::filesystem::exists(context_.state.run(id));
  };
  if (!wanted.empty()) {
    if (taken(wanted))
      throw AlreadyExists(
          fmt::format("a run named \"{}\" exists already; choose another name", wanted),
          "RUN_EXISTS", {{"run", wanted}, {"field", "spec.name"}});
    return wanted;
  }
  std::int64_t number = next_number_;
  while (taken(fmt::format("run-{}", number))) ++number;
  return fmt::format("run-{}", number);
}

RunManager::Created RunManager::create(const v1::RunSpec& spec, const RequestKey& key,
                                       const std::string& client) {
  const std::lock_guard one(creating_);
  Created created;
  created.token = random_secret();
  if (const auto first = context_.store.find_request(key)) {
    const SessionPtr session = find(*first);
    // What an earlier daemon has noted of a request does not say whose it was.
    const std::string owner = session->ownership().owner;
    if (owner != key.by.owner() || (owner.empty() && session->client() != client))
      throw InvalidArgument(
          fmt::format("request_id {} was used before by another client", key.given_id()),
          "REQUEST_ID_REUSED", {{"request_id", key.given_id()}});
    session->replace_token(token_digest(created.token));
    created.run = session->view();
    return created;
  }
  if (context_.stopping) throw Unavailable("the daemon is stopping", "STOPPING");
  check_spec(spec);
  if (!spec.state().empty()) context_.store.state(spec.state());
  const Admitted admitted = context_.resolver.admit_run(spec);
  forget_oldest(client, key.by);
  v1::RunRecord record;
  record.set_token_digest(token_digest(created.token));
  v1::Run& run = *record.mutable_run();
  const std::string id = free_id(spec.name());
  run.set_name(run_resource(id));
  run.set_state(v1::RUN_STATE_QUEUED);
  *run.mutable_spec() = spec;
  run.mutable_spec()->set_name(id);
  *run.mutable_resolved() = admitted.resolved;
  run.set_client(client);
  run.set_owner(key.by.owner());
  run.set_epoch(1);
  run.set_next_seq(1);
  run.set_create_time(base::now_rfc3339());
  context_.store.put(record, key);
  std::filesystem::create_directories(context_.state.run(id) / "states");
  add(record);
  spdlog::info("run {}: client {} makes it", id, client);
  created.run = find(id)->view();
  created.warnings = admitted.warnings;
  return created;
}

void RunManager::forget_oldest(const std::string& client, const Identity& by) {
  std::vector<Forgotten> forgotten;
  std::vector<std::thread> threads;
  {
    const std::lock_guard lock(mutex_);
    std::int64_t open = 0, of_client = 0;
    std::vector<std::int64_t> bare;
    for (auto& [number, item] : items_) {
      if (!item.session->ended()) {
        ++open;
        const std::string owner = item.session->ownership().owner;
        const bool own =
            owner == by.owner() && (!owner.empty() || item.session->client() == client);
        of_client += own ? 1 : 0;
        continue;
      }
      if (item.thread.joinable()) threads.push_back(std::move(item.thread));
      if (item.session->states().empty()) bare.push_back(number);
    }
    // Of the admins, who are one owner, each client is counted by itself.
    context_.limits.check(LimitKind::kRuns, by.is_admin() ? client : by.owner(), {of_client, open});
    for (std::size_t i = 0; i + kMostEnded < bare.size(); ++i)
      forgotten.push_back(take_out(bare[i]));
  }
  for (std::thread& thread : threads) thread.join();  // they have ended, or are about to
  forget(std::move(forgotten));
}

RunManager::Forgotten RunManager::take_out(std::int64_t number) {
  const auto item = items_.find(number);
  Forgotten forgotten = {item->second.session, std::move(item->second.thread)};
  by_id_.erase(forgotten.session->id());
  items_.erase(item);
  return forgotten;
}

void RunManager::forget(std::vector<Forgotten> runs) {
  for (Forgotten& run : runs) {
    if (run.thread.joinable()) run.thread.join();
    const std::string& id = run.session->id();
    run.session->forget();
    context_.store.remove(id);
    operations_.forget_run(id);
    std::error_code error;
    std::filesystem::remove_all(context_.state.run(id), error);
    if (error) spdlog::warn("run {}: its folder is not removed: {}", id, error.message());
  }
}

void RunManager::close_by_force(const std::string& id, const std::string& client,
                                const Identity& by) {
  const SessionPtr session = find(id);
  check_is_maker(*session, client, by, "close");
  spdlog::info("run {}: client {} closes it by force", id, client);
  session->close(
      FailedPrecondition(fmt::format("client \"{}\" closed it by force, without its token", client),
                         "RUN_CLOSED", {{"run", id}}));
}

void RunManager::remove(const std::string& id, const std::string& client, const Identity& by) {
  const std::lock_guard one(creating_);  // nobody takes its name meanwhile
  const SessionPtr session = find(id);
  check_is_maker(*session, client, by, "delete");
  if (!session->ended())
    throw FailedPrecondition(
        fmt::format("run \"{}\" has not ended: close it, or wait for the end of its lease", id),
        "RUN_NOT_ENDED", {{"run", id}});
  std::vector<Forgotten> forgotten;
  {
    const std::lock_guard lock(mutex_);
    forgotten.push_back(take_out(by_id_.at(id)));
  }
  forget(std::move(forgotten));
  spdlog::info("run {}: client {} deletes it", id, client);
}

std::map<std::string, RunManager::Owned> RunManager::owners() const {
  const std::lock_guard lock(mutex_);
  std::map<std::string, Owned> owners;
  for (const auto& [number, item] : items_)
    owners[item.session->id()] = {item.session->ownership().owner, !item.session->ended()};
  return owners;
}

std::optional<Ownership> RunManager::ownership(const std::string& id) const {
  SessionPtr session;
  {
    const std::lock_guard lock(mutex_);
    const auto found = by_id_.find(id);
    if (found == by_id_.end()) return std::nullopt;
    session = items_.at(found->second).session;
  }
  return session->ownership();
}

std::pair<std::vector<v1::Run>, std::int64_t> RunManager::list(std::int64_t position, int size,
                                                               const IsShown& is_shown) const {
  std::map<std::int64_t, SessionPtr> sessions;
  {
    const std::lock_guard lock(mutex_);
    const auto most = static_cast<std::size_t>(size) + 1;
    for (auto item = items_.upper_bound(position); item != items_.end() && sessions.size() < most;
         ++item)
      if (!is_shown || is_shown(item->second.session->ownership()))
        sessions.emplace(item->first, item->second.session);
  }
  return page_of(sessions, position, size,
                 [](const SessionPtr& session) { return std::optional(session->summary()); });
}

RunManager::SessionPtr RunManager::session_of(const std::string& operation) const {
  // "operations/RUN/EPOCH/KEY"
  constexpr std::string_view kPrefix = "operations/";
  const auto slash = operation.find('/', kPrefix.size());
  SessionPtr session;
  if (operation.rfind(kPrefix, 0) == 0 && slash != std::string::npos) {
    const std::lock_guard lock(mutex_);
    const auto found = by_id_.find(operation.substr(kPrefix.size(), slash - kPrefix.size()));
    if (found != by_id_.end()) session = items_.at(found->second).session;
  }
  if (!operations_.has(operation) && session) {
    std::int64_t epoch = 0;
    std::from_chars(operation.data() + slash + 1, operation.data() + operation.size(), epoch);
    session->explain_lost(epoch);
  }
  const std::string run = operations_.run_of(operation);  // throws for one that is not kept
  return session ? session : find(run);
}

v1::Operation RunManager::operation(const std::string& name, bool of_holder) {
  const SessionPtr session = session_of(name);
  v1::Operation operation = operations_.get(name, of_holder);
  if (operation.state() == v1::OPERATION_STATE_WAITING)
    operation.set_waits_for(session->waits_for(operation));
  return operation;
}

train::PromptLimits RunManager::prompt_limits(const RunSession& run) const {
  std::optional<train::PromptLimits> limits = run.prompt_limits();
  // The ranks know the size of the vocabulary alone: one of 256 tokens may have a tokenizer, too.
  train::PromptLimits known = context_.tokenization.prompt_limits(run.resolved());
  if (!limits) return known;
  limits->generation = std::move(known.generation);
  limits->beginning = known.beginning;
  limits->tokenizer = std::move(known.tokenizer);
  limits->no_tokenizer = std::move(known.no_tokenizer);
  limits->tokenizer_is_refused = known.tokenizer_is_refused;
  limits->chat = std::move(known.chat);
  limits->no_chat = std::move(known.no_chat);
  return *limits;
}

void RunManager::tick() {
  // What leaves the ticker's thread would end the daemon.
  try {
    check_times();
    if (++ticks_ < kTicksOfStates) return;
    ticks_ = 0;
    collect_states();
    if (context_.freed.exchange(false)) give_back_free_memory();
  } catch (const std::exception& error) {
    spdlog::warn("runs are not looked after: {}", error.what());
  }
}

void RunManager::check_times() const {
  std::vector<SessionPtr> sessions;
  {
    const std::lock_guard lock(mutex_);
    for (const auto& [number, item] : items_)
      if (!item.session->ended()) sessions.push_back(item.session);
  }
  for (const SessionPtr& session : sessions) session->check_times();
}

void RunManager::collect_states() const {
  std::vector<SessionPtr> sessions;
  {
    const std::lock_guard lock(mutex_);
    for (const auto& [number, item] : items_) sessions.push_back(item.session);
  }
  std::set<std::string> needed;
  for (const SessionPtr& session : sessions) needed.insert(session->needed_state());
  for (const SessionPtr& session : sessions) session->collect_states(needed);
}

}  // namespace meshloom::control
