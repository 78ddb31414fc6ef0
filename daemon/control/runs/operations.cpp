// SPDX-License-Identifier: Apache-2.0
#include "daemon/control/runs/operations.h"

#include <iterator>

#include "daemon/base/states.h"
#include "daemon/control/net/status.h"
#include "daemon/control/stores/page_room.h"
#include "kernels/base/error.h"

namespace meshloom::control {
namespace {

constexpr std::chrono::hours kLongest{7 * 24};

[[noreturn]] void refuse_unknown(const std::string& name) {
  throw NotFound(
      fmt::format("operation \"{}\" does not exist, or is no longer kept", name.substr(0, 200)),
      "OPERATION_NOT_FOUND", {{"operation", name.substr(0, 200)}});
}

void wake_all(const std::vector<std::weak_ptr<Wakeable>>& wakes) {
  for (const auto& who : wakes)
    if (const auto woken = who.lock()) woken->wake();
}

}  // namespace

std::string operation_name(const std::string& run, std::int64_t epoch, const std::string& key) {
  return fmt::format("operations/{}/{}/{}", run, epoch, key);
}

v1::Operation Operations::Entry::view() const {
  v1::Operation seen = operation;
  const auto until = has_ended() ? ended : Clock::now();
  seen.set_seconds(std::chrono::duration<double>(until - taken).count());
  return seen;
}

Operations::Entry& Operations::entry(const std::string& name) {
  const auto found = entries_.find(name);
  if (found == entries_.end()) refuse_unknown(name);
  return found->second;
}

const Operations::Entry& Operations::entry(const std::string& name) const {
  const auto found = entries_.find(name);
  if (found == entries_.end()) refuse_unknown(name);
  return found->second;
}

v1::Operation Operations::add(const std::string& run, const std::string& name,
                              const std::string& verb, Progress progress) {
  const std::lock_guard lock(mutex_);
  const std::string owner = runs_[run].owner;
  make_room(owner);
  limits_.check(LimitKind::kResultBytes, owner, {owned_[owner], bytes_}, 0);
  Entry& fresh = add_entry(run, name, verb);
  fresh.progress = std::move(progress);
  return fresh.view();
}

Operations::Entry& Operations::add_entry(const std::string& run, const std::string& name,
                                         const std::string& verb) {
  OfRun& of_run = runs_[run];
  prune(of_run);
  Entry& fresh = entries_[name];
  fresh.operation.set_name(name);
  fresh.operation.set_state(v1::OPERATION_STATE_WAITING);
  fresh.operation.set_verb(verb);
  fresh.run = run;
  fresh.number = next_number_++;
  fresh.taken = Clock::now();
  of_run.names[fresh.number] = name;
  ++of_run.open;
  return fresh;
}

void Operations::restore(const std::string& run, const std::string& name, const std::string& verb,
                         Result result) {
  Outcome outcome = outcome_of(std::move(result));
  const std::lock_guard lock(mutex_);
  Entry& done = add_entry(run, name, verb);
  end(done, v1::OPERATION_STATE_SUCCEEDED, nullptr, std::move(outcome));
  make_spare(done);
}

void Operations::make_spare(Entry& ended) {
  if (ended.spare > 0) return;
  ended.spare = next_number_++;
  spare_[ended.spare] = ended.operation.name();
}

bool Operations::begin(const std::string& name, std::shared_ptr<Stoppable> running) {
  std::unique_lock lock(mutex_);
  const auto found = entries_.find(name);
  if (found == entries_.end() || found->second.has_ended()) return false;
  Entry& begun = found->second;
  base::move_to(begun.operation, v1::OPERATION_STATE_RUNNING);
  begun.begun = true;
  begun.stop = std::move(running);
  const Wakes wakes = wakes_of(begun);
  lock.unlock();
  wake_all(wakes);
  return true;
}

void Operations::progressed(const std::string& name) {
  std::unique_lock lock(mutex_);
  const auto found = entries_.find(name);
  if (found == entries_.end()) return;
  const Wakes wakes = wakes_of(found->second);
  lock.unlock();
  wake_all(wakes);
}

Operations::Wakes Operations::wakes_of(const Entry& changed) {
  Wakes wakes;
  for (const auto& [number, waiter] : changed.waiters)
    if (!waiter.at_end || changed.has_ended()) wakes.push_back(waiter.who);
  return wakes;
}

Operations::Outcome Operations::outcome_of(Result result) {
  Outcome outcome;
  outcome.wire_bytes = result->ByteSizeLong();
  if (outcome.wire_bytes <= kInlineBytes) {
    outcome.bytes = result->SpaceUsedLong();
    outcome.result = std::move(result);
    return outcome;
  }
  // Who reads a large one gets pieces of its bytes. The message goes, unless a sample keeps it for
  // those who watch it.
  auto bytes = std::make_shared<std::string>();
  result->SerializeToString(bytes.get());
  outcome.bytes = bytes->capacity() + (result.use_count() > 1 ? result->SpaceUsedLong() : 0);
  outcome.serialised = std::move(bytes);
  return outcome;
}

Operations::Wakes Operations::end(Entry& over, v1::OperationState state,
                                  const v1::ErrorDetails* error, Outcome outcome) {
  if (over.has_ended()) return {};
  base::move_to(over.operation, state);
  over.operation.set_result_bytes(static_cast<std::int64_t>(outcome.wire_bytes));
  if (error) {
    *over.operation.mutable_error() = *error;
    outcome.bytes += error->SpaceUsedLong();
  }
  over.ended = Clock::now();
  over.outcome = std::move(outcome);
  if (!over.outcome.result && !over.outcome.serialised) over.progress.reset();
  over.stop = nullptr;
  OfRun& of_run = runs_[over.run];
  const auto bytes = static_cast<std::int64_t>(over.outcome.bytes);
  bytes_ += bytes;
  owned_[of_run.owner] += bytes;
  --of_run.open;
  if (of_run.closed) make_spare(over);
  return wakes_of(over);
}

void Operations::end_kept(const std::string& name, v1::OperationState state,
                          const v1::ErrorDetails* error, Outcome outcome) {
  std::unique_lock lock(mutex_);
  const auto found = entries_.find(name);
  if (found == entries_.end() || found->second.has_ended()) return;
  const std::string owner = runs_[found->second.run].owner;
  const Wakes wakes = end(found->second, state, error, std::move(outcome));
  make_room(owner);
  lock.unlock();
  wake_all(wakes);
  forget_woken(name);
}

void Operations::forget_woken(const std::string& name) {
  const std::lock_guard lock(mutex_);
  const auto found = entries_.find(name);
  if (found != entries_.end())
    std::erase_if(found->second.waiters, [](const auto& item) { return item.second.at_end; });
}

void Operations::succeed(const std::string& name, Result result) {
  end_kept(name, v1::OPERATION_STATE_SUCCEEDED, nullptr, outcome_of(std::move(result)));
}

void Operations::fail(const std::string& name, const v1::ErrorDetails& error) {
  end_kept(name, v1::OPERATION_STATE_FAILED, &error, {});
}

v1::Operation Operations::cancel(const std::string& name) {
  std::unique_lock lock(mutex_);
  Entry& cancelled = entry(name);
  const v1::OperationState state = cancelled.operation.state();
  if (state == v1::OPERATION_STATE_RUNNING && !(cancelled.stop && cancelled.stop->request_stop()))
    throw FailedPrecondition(
        fmt::format("operation \"{}\" has begun already, and is not left before its end", name),
        "OPERATION_BEGUN", {{"operation", name}});
  if (state == v1::OPERATION_STATE_SUCCEEDED || state == v1::OPERATION_STATE_FAILED)
    throw FailedPrecondition(fmt::format("operation \"{}\" has ended already", name),
                             "OPERATION_ENDED", {{"operation", name}});
  if (state == v1::OPERATION_STATE_CANCELLED) return cancelled.view();
  const v1::ErrorDetails error =
      to_details(Cancelled("its client has cancelled it", "CANCELLED_BY_CLIENT"));
  const Wakes wakes = end(cancelled, v1::OPERATION_STATE_CANCELLED, &error, {});
  make_spare(cancelled);
  v1::Operation seen = cancelled.view();
  lock.unlock();
  wake_all(wakes);
  forget_woken(name);
  return seen;
}

v1::Operation Operations::get(const std::string& name, bool of_holder) {
  v1::Operation seen;
  Result result;
  {
    const std::lock_guard lock(mutex_);
    Entry& asked = entry(name);
    if (of_holder && asked.has_ended() && !asked.outcome.serialised) make_spare(asked);
    seen = asked.view();
    result = asked.outcome.result;
  }
  if (result) *seen.mutable_result() = *result;
  return seen;
}

bool Operations::has(const std::string& name) const {
  const std::lock_guard lock(mutex_);
  return entries_.count(name) > 0;
}

bool Operations::is_open(const std::string& name) const {
  const std::lock_guard lock(mutex_);
  const auto found = entries_.find(name);
  return found != entries_.end() && !found->second.has_ended();
}

std::string Operations::run_of(const std::string& name) const {
  const std::lock_guard lock(mutex_);
  return entry(name).run;
}

std::int64_t Operations::open_of(const std::string& run) const {
  const std::lock_guard lock(mutex_);
  const auto found = runs_.find(run);
  return found == runs_.end() ? 0 : found->second.open;
}

std::int64_t Operations::add_waiter(Entry& waited, Waiter waiter) {
  const std::int64_t number = next_number_++;
  waited.waiters.emplace(number, std::move(waiter));
  return number;
}

std::int64_t Operations::when_ended(const std::string& name, std::weak_ptr<Wakeable> waiter) {
  {
    const std::lock_guard lock(mutex_);
    Entry& waited = entry(name);
    if (!waited.has_ended()) return add_waiter(waited, {std::move(waiter), true});
  }
  if (const auto woken = waiter.lock()) woken->wake();
  return 0;
}

std::int64_t Operations::watch(const std::string& name, std::weak_ptr<Wakeable> watcher) {
  const std::lock_guard lock(mutex_);
  return add_waiter(entry(name), {std::move(watcher), false});
}

Operations::Seen Operations::look(const std::string& name) const {
  const std::lock_guard lock(mutex_);
  const Entry& seen = entry(name);
  return {seen.view(), seen.begun, seen.progress};
}

void Operations::forget_waiter(const std::string& name, std::int64_t waiter) {
  const std::lock_guard lock(mutex_);
  const auto found = entries_.find(name);
  if (found != entries_.end()) found->second.waiters.erase(waiter);
}

std::pair<std::vector<v1::Operation>, std::int64_t> Operations::list(const std::string& run,
                                                                     std::int64_t position,
                                                                     int size) const {
  const std::lock_guard lock(mutex_);
  const auto found = runs_.find(run);
  if (found == runs_.end()) return {};
  return page_of(found->second.names, position, size,
                 [this](const std::string& name) { return std::optional(entry(name).view()); });
}

Operations::Result Operations::result(const std::string& name) const {
  const std::lock_guard lock(mutex_);
  return entry(name).outcome.result;
}

Operations::Bytes Operations::serialised(const std::string& name) const {
  Result small;
  {
    const std::lock_guard lock(mutex_);
    const Outcome& outcome = entry(name).outcome;
    if (outcome.serialised || !outcome.result) return outcome.serialised;
    small = outcome.result;
  }
  return std::make_shared<const std::string>(small->SerializeAsString());
}

void Operations::mark_delivered(const std::string& name) {
  const std::lock_guard lock(mutex_);
  const auto found = entries_.find(name);
  if (found != entries_.end() && found->second.has_ended()) make_spare(found->second);
}

void Operations::close_run(const std::string& run) {
  const std::lock_guard lock(mutex_);
  const auto found = runs_.find(run);
  if (found == runs_.end()) return;
  found->second.closed = true;
  for (const auto& [number, name] : found->second.names)
    if (Entry& of_run = entries_.at(name); of_run.has_ended()) make_spare(of_run);
  prune(found->second);
}

void Operations::erase(const std::string& name) {
  const auto found = entries_.find(name);
  const Entry& gone = found->second;
  OfRun& of_run = runs_.at(gone.run);
  const auto bytes = static_cast<std::int64_t>(gone.outcome.bytes);
  bytes_ -= bytes;
  if ((owned_[of_run.owner] -= bytes) == 0) owned_.erase(of_run.owner);
  of_run.names.erase(gone.number);
  spare_.erase(gone.spare);
  entries_.erase(found);
}

void Operations::prune(OfRun& run) {
  // Only the oldest are looked at, so that a verb costs the same however many there are.
  auto item = run.names.begin();
  for (int looked_at = 0; looked_at < 8 && item != run.names.end(); ++looked_at) {
    const Entry& oldest = entries_.at(item->second);
    const bool many = run.names.size() > kKept;
    const bool old = oldest.has_ended() && Clock::now() - oldest.ended > kLongest;
    const std::string name = (item++)->second;
    if ((many || old) && oldest.may_go()) erase(name);
  }
}

void Operations::make_room(const std::string& owner) {
  const std::int64_t most = limits_.of_all(LimitKind::kResultBytes);
  const std::int64_t most_of_owner =
      owner.empty() ? most : limits_.of_owner(LimitKind::kResultBytes);
  const auto own = [&] {
    const auto found = owned_.find(owner);
    return found == owned_.end() ? 0 : found->second;
  };
  for (auto item = spare_.begin();
       item != spare_.end() && (bytes_ > most || own() > most_of_owner);) {
    const std::string name = (item++)->second;
    const Entry& spare = entries_.at(name);
    const bool helps = bytes_ > most || runs_.at(spare.run).owner == owner;
    if (helps && spare.may_go()) erase(name);
  }
}

Limits Operations::limits_of(std::size_t most_bytes) {
  v1::LimitConfig limits;
  limits.set_total_result_bytes(static_cast<std::int64_t>(most_bytes));
  return Limits(limits);
}

void Operations::set_owner(const std::string& run, const std::string& owner) {
  const std::lock_guard lock(mutex_);
  runs_[run].owner = owner;
}

std::map<std::string, std::int64_t> Operations::bytes_by_owner() const {
  const std::lock_guard lock(mutex_);
  return owned_;
}

void Operations::forget_run(const std::string& run) {
  const std::lock_guard lock(mutex_);
  const auto found = runs_.find(run);
  if (found == runs_.end()) return;
  while (!found->second.names.empty()) erase(std::string(found->second.names.begin()->second));
  runs_.erase(found);
}

}  // namespace meshloom::control
