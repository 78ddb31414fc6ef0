// SPDX-License-Identifier: Apache-2.0
#include "daemon/control/runs/operations.h"

#include <iterator>

#include "daemon/control/net/status.h"
#include "kernels/base/error.h"

namespace meshloom::control {
namespace {

constexpr std::chrono::hours kLongest{7 * 24};

[[noreturn]] void refuse_unknown(const std::string& name) {
  throw NotFound(
      fmt::format("operation \"{}\" does not exist, or is no longer kept", name.substr(0, 200)),
      "OPERATION_NOT_FOUND", {{"operation", name.substr(0, 200)}});
}

std::size_t size_of(const std::shared_ptr<const v1::VerbResult>& result) {
  return result ? result->ByteSizeLong() : 0;
}

}  // namespace

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
                              const std::string& verb) {
  const std::lock_guard lock(mutex_);
  if (bytes_ > most_bytes_) make_room();
  if (bytes_ > most_bytes_)
    throw ResourceExhausted(
        fmt::format(
            "results of {} bytes wait to be fetched, {} are kept at most; read some of them "
            "(WaitOperation, ReadResult)",
            bytes_, most_bytes_),
        "RESULTS_FULL", {{"bytes", std::to_string(bytes_)}});
  Entry& fresh = entries_[name];
  fresh.operation.set_name(name);
  fresh.operation.set_state(v1::OPERATION_STATE_WAITING);
  fresh.operation.set_verb(verb);
  fresh.run = run;
  fresh.number = next_number_++;
  fresh.taken = Clock::now();
  OfRun& of_run = runs_[run];
  of_run.names[fresh.number] = name;
  ++of_run.open;
  return fresh.view();
}

bool Operations::begin(const std::string& name) {
  const std::lock_guard lock(mutex_);
  Entry& begun = entry(name);
  if (begun.has_ended()) return false;
  begun.operation.set_state(v1::OPERATION_STATE_RUNNING);
  return true;
}

Operations::Waiters Operations::end(Entry& over, v1::OperationState state,
                                    const v1::ErrorDetails* error,
                                    std::shared_ptr<const v1::VerbResult> result) {
  if (over.has_ended()) return {};
  over.operation.set_state(state);
  over.operation.set_result_bytes(static_cast<std::int64_t>(size_of(result)));
  if (error) *over.operation.mutable_error() = *error;
  over.ended = Clock::now();
  over.result = std::move(result);
  bytes_ += size_of(over.result);
  Waiters waiters = std::exchange(over.waiters, {});
  --runs_[over.run].open;
  return waiters;
}

void Operations::notify(const Waiters& waiters) {
  for (const auto& [number, waiter] : waiters) waiter();
}

void Operations::succeed(const std::string& name, v1::VerbResult result) {
  auto shared = std::make_shared<const v1::VerbResult>(std::move(result));
  std::unique_lock lock(mutex_);
  Entry& over = entry(name);
  const Waiters waiters = end(over, v1::OPERATION_STATE_SUCCEEDED, nullptr, std::move(shared));
  prune(runs_[over.run]);
  lock.unlock();
  notify(waiters);
}

void Operations::fail(const std::string& name, const v1::ErrorDetails& error) {
  std::unique_lock lock(mutex_);
  Entry& over = entry(name);
  const Waiters waiters = end(over, v1::OPERATION_STATE_FAILED, &error, nullptr);
  prune(runs_[over.run]);
  lock.unlock();
  notify(waiters);
}

v1::Operation Operations::cancel(const std::string& name) {
  std::unique_lock lock(mutex_);
  Entry& cancelled = entry(name);
  const v1::OperationState state = cancelled.operation.state();
  if (state == v1::OPERATION_STATE_RUNNING)
    throw FailedPrecondition(fmt::format("operation \"{}\" has begun already", name),
                             "OPERATION_BEGUN", {{"operation", name}});
  if (state == v1::OPERATION_STATE_SUCCEEDED || state == v1::OPERATION_STATE_FAILED)
    throw FailedPrecondition(fmt::format("operation \"{}\" has ended already", name),
                             "OPERATION_ENDED", {{"operation", name}});
  const v1::ErrorDetails error =
      to_details(Cancelled("its client has cancelled it", "CANCELLED_BY_CLIENT"));
  const Waiters waiters = end(cancelled, v1::OPERATION_STATE_CANCELLED, &error, nullptr);
  v1::Operation seen = cancelled.view();
  prune(runs_[cancelled.run]);
  lock.unlock();
  notify(waiters);
  return seen;
}

v1::Operation Operations::get(const std::string& name) {
  const std::lock_guard lock(mutex_);
  Entry& asked = entry(name);
  v1::Operation seen = asked.view();
  if (!asked.has_ended() || size_of(asked.result) > kInlineBytes) return seen;
  if (asked.result) *seen.mutable_result() = *asked.result;
  asked.told = true;
  return seen;
}

bool Operations::has(const std::string& name) const {
  const std::lock_guard lock(mutex_);
  return entries_.count(name) > 0;
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

std::int64_t Operations::when_ended(const std::string& name, std::function<void()> ended) {
  {
    const std::lock_guard lock(mutex_);
    Entry& waited = entry(name);
    if (!waited.has_ended()) {
      const std::int64_t number = next_number_++;
      waited.waiters.emplace(number, std::move(ended));
      return number;
    }
  }
  ended();
  return 0;
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
  std::vector<v1::Operation> seen;
  const auto found = runs_.find(run);
  if (found == runs_.end()) return {};
  const auto& names = found->second.names;
  std::int64_t last = position;
  for (auto item = names.upper_bound(position); item != names.end(); ++item) {
    if (seen.size() == static_cast<std::size_t>(size)) return {std::move(seen), last};
    seen.push_back(entry(item->second).view());
    last = item->first;
  }
  return {std::move(seen), 0};
}

std::shared_ptr<const v1::VerbResult> Operations::result(const std::string& name) const {
  const std::lock_guard lock(mutex_);
  return entry(name).result;
}

void Operations::told(const std::string& name) {
  const std::lock_guard lock(mutex_);
  const auto found = entries_.find(name);
  if (found != entries_.end()) found->second.told = true;
}

void Operations::close_run(const std::string& run) {
  const std::lock_guard lock(mutex_);
  const auto found = runs_.find(run);
  if (found == runs_.end()) return;
  found->second.closed = true;
  prune(found->second);
}

void Operations::prune(OfRun& run) {
  // Only the oldest are looked at, so that a verb costs the same however many there are.
  auto item = run.names.begin();
  for (int looked_at = 0; looked_at < 8 && item != run.names.end(); ++looked_at) {
    const Entry& oldest = entries_.at(item->second);
    const bool many = run.names.size() > kKept;
    const bool old = oldest.has_ended() && Clock::now() - oldest.ended > kLongest;
    if (!(many || old) || !oldest.may_go(run.closed)) {
      ++item;
      continue;
    }
    bytes_ -= size_of(oldest.result);
    entries_.erase(item->second);
    item = run.names.erase(item);
  }
}

void Operations::make_room() {
  for (auto& [name, of_run] : runs_) {
    for (auto item = of_run.names.begin(); item != of_run.names.end() && bytes_ > most_bytes_;) {
      const Entry& oldest = entries_.at(item->second);
      if (!oldest.result || !oldest.may_go(of_run.closed)) {
        ++item;
        continue;
      }
      bytes_ -= size_of(oldest.result);
      entries_.erase(item->second);
      item = of_run.names.erase(item);
    }
  }
}

void Operations::forget_run(const std::string& run) {
  const std::lock_guard lock(mutex_);
  const auto found = runs_.find(run);
  if (found == runs_.end()) return;
  for (const auto& [number, name] : found->second.names) {
    bytes_ -= size_of(entries_.at(name).result);
    entries_.erase(name);
  }
  runs_.erase(found);
}

}  // namespace meshloom::control
