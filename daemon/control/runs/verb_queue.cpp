// SPDX-License-Identifier: Apache-2.0
#include "daemon/control/runs/verb_queue.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>
#include <variant>

#include "daemon/control/net/status.h"
#include "daemon/control/stores/names.h"
#include "daemon/train/run/gradient_window.h"

namespace meshloom::control {
namespace {

constexpr std::int64_t kMostAhead = 10'000;  // numbers before the next one that may arrive
constexpr std::int64_t kRemembered = 10'000;
constexpr std::size_t kMostInFlight = 8;

}  // namespace

void VerbQueue::refuse_used(std::int64_t seq, const std::string& digest) const {
  const auto known = digests_.find(seq);
  if (known != digests_.end() && known->second != digest)
    throw InvalidArgument(
        fmt::format("number {} of run \"{}\" was given to another verb", seq, run_.id),
        "SEQUENCE_REUSED", {{"field", "id.seq"}, {"run", run_.id}});
  throw FailedPrecondition(fmt::format("number {} of run \"{}\" is used up; the next one is {}",
                                       seq, run_.id, sequence_.next_new()),
                           "SEQUENCE_USED",
                           {{"run", run_.id}, {"next_seq", std::to_string(sequence_.next_new())}});
}

v1::Operation VerbQueue::submit(Arrival arrival) {
  Verb::Request& request = arrival.request;
  const v1::VerbId id = id_of(request);
  const std::lock_guard lock(mutex_);
  if (id.seq() < 1 || id.seq() - sequence_.next() > kMostAhead)
    throw InvalidArgument(fmt::format("number {} is out of range: the next one is {}, at most {} "
                                      "may be ahead of it",
                                      id.seq(), sequence_.next_new(), kMostAhead),
                          "SEQUENCE_INVALID", {{"field", "id.seq"}});
  const std::string name = operation_name(run_.id, id.epoch(), std::to_string(id.seq()));
  if (sequence_.used_up(id.seq())) {
    const auto known = digests_.find(id.seq());
    if (known != digests_.end() && known->second == arrival.digest && parts_.operations.has(name))
      return parts_.operations.get(name);
    refuse_used(id.seq(), arrival.digest);
  }
  digests_[id.seq()] = arrival.digest;
  if (digests_.size() > kRemembered) digests_.erase(digests_.begin());
  // Where it is refused its number is used up, and nothing else is kept of it: those behind it go
  // on.
  const auto verb = std::make_shared<Verb>(Verb{number_of(request), ""});
  sequence_.add(id.seq(), verb, Clock::now());
  check_verb(request);
  if (const auto* state = std::get_if<v1::SaveStateRequest>(&request))
    parts_.states.check_room(*state);
  if (const std::string upload = upload_of(request); !upload.empty())
    parts_.uploads.check_complete(run_resource(run_.id), parse_upload_name(upload));
  MemoryUnits memory = parts_.waiting.take(run_.id, run_.client, arrival.bytes);
  v1::Operation operation = parts_.operations.add(run_.id, name, name_of(request));
  *verb = {std::move(request), name, std::move(memory)};
  return operation;
}

std::int64_t VerbQueue::next() const {
  const std::lock_guard lock(mutex_);
  return sequence_.next();
}

std::int64_t VerbQueue::next_new() const {
  const std::lock_guard lock(mutex_);
  return sequence_.next_new();
}

std::string VerbQueue::waits_for(std::int64_t seq) const {
  const std::lock_guard lock(mutex_);
  if (const auto missing = sequence_.missing(); missing && seq > *missing)
    return fmt::format("number {}, which has not arrived", *missing);
  return fmt::format("{} verbs before it", static_cast<std::int64_t>(in_flight_.size()) +
                                               std::max<std::int64_t>(0, seq - sequence_.next()));
}

void VerbQueue::fail(const Verbs& verbs, const Error& error) const {
  const v1::ErrorDetails details = to_details(error);
  for (const auto& verb : verbs)
    if (!verb->operation.empty()) parts_.operations.fail(verb->operation, details);
}

bool VerbQueue::end_gap(Clock::time_point now) {
  std::int64_t missing = 0, next = 0, seconds = 0;
  Verbs verbs;
  {
    const std::lock_guard lock(mutex_);
    const auto gap = sequence_.gap_ends();
    if (!gap || now < *gap) return false;
    missing = *sequence_.missing();
    verbs = sequence_.give_up_gap();
    next = sequence_.next();
    seconds = std::chrono::duration_cast<std::chrono::seconds>(sequence_.gap_timeout()).count();
    // What is behind the gap may have been gradients, and what was lost in it too.
    if (!gap_) gap_ = {missing, fmt::format("verb {} never arrived", missing)};
  }
  fail(verbs, Aborted(fmt::format("verb {} of run \"{}\" has not arrived in {} s; the next "
                                  "number is {}",
                                  missing, run_.id, seconds, next),
                      "SEQUENCE_GAP",
                      {{"run", run_.id},
                       {"missing_seq", std::to_string(missing)},
                       {"next_seq", std::to_string(next)}}));
  return true;
}

void VerbQueue::fail_waiting(const Error& error) {
  Verbs verbs;
  {
    const std::lock_guard lock(mutex_);
    verbs = sequence_.take_all();
  }
  fail(verbs, error);
}

void VerbQueue::forget_numbers() {
  const std::lock_guard lock(mutex_);
  digests_.clear();
}

void VerbQueue::begin_epoch(std::int64_t next, const Error& error) {
  Verbs verbs;
  {
    const std::lock_guard lock(mutex_);
    verbs = sequence_.take_all();
    digests_.clear();
    gap_.reset();
    missing_.reset();
    sequence_ = VerbSequence(next, sequence_.gap_timeout());
  }
  fail(verbs, error);
}

bool VerbQueue::none_in_flight() const {
  const std::lock_guard lock(mutex_);
  return in_flight_.empty();
}

bool VerbQueue::may_start() const {
  const std::lock_guard lock(mutex_);
  const Verb* next = sequence_.front();
  if (!next) return false;
  // One that was refused takes nothing, and may name anything.
  const std::string upload = next->operation.empty() ? "" : upload_of(next->request);
  std::int64_t taken = 0;
  for (const VerbInFlight& other : in_flight_) taken += other.upload_bytes;
  if (!upload.empty() && taken > 0 &&
      taken + parts_.uploads.size_of(run_resource(run_.id), parse_upload_name(upload)) >
          parts_.most_upload_bytes)
    return false;
  return reads_files(next->request) ? in_flight_.empty() : in_flight_.size() < kMostInFlight;
}

VerbQueue::Taken VerbQueue::take() {
  const std::lock_guard lock(mutex_);
  return {sequence_.take(), std::exchange(gap_, std::nullopt)};
}

void VerbQueue::add_in_flight(std::vector<VerbInFlight> begun) {
  const std::lock_guard lock(mutex_);
  for (VerbInFlight& one : begun) in_flight_.push_back(std::move(one));
  begun_.notify_all();
}

void VerbQueue::stop_in_flight() const {
  const std::lock_guard lock(mutex_);
  for (const VerbInFlight& verb : in_flight_)
    if (verb.stop) verb.stop->request_stop();
}

VerbInFlight* VerbQueue::wait_for_oldest() {
  std::unique_lock lock(mutex_);
  begun_.wait(lock, [&] { return !collecting_ || !in_flight_.empty(); });
  return in_flight_.empty() ? nullptr : &in_flight_.front();  // a deque's elements stay in place
}

void VerbQueue::begin_collecting() {
  const std::lock_guard lock(mutex_);
  collecting_ = true;
}

void VerbQueue::end_collecting() {
  const std::lock_guard lock(mutex_);
  collecting_ = false;
  begun_.notify_all();
}

v1::ErrorDetails VerbQueue::fail_oldest(const std::exception_ptr& error) {
  VerbInFlight verb;  // what it holds ends without the mutex
  v1::ErrorDetails details = to_details(error);
  const std::lock_guard lock(mutex_);
  verb = std::move(in_flight_.front());
  in_flight_.pop_front();
  if (verb.adds_gradients && !missing_)
    missing_ = {verb.seq,
                fmt::format("verb {} (forward_backward) failed: {}", verb.seq, details.message())};
  if (details.info().reason() != train::kGradientsPoisoned || !missing_) return details;
  // The ranks know a cause, and not the number that its verb has for the client.
  const MissingGradients first =
      *std::exchange(missing_, std::nullopt);  // the ranks have discarded them
  details.set_message(fmt::format(
      "optim_step: the gradients since the last optimizer step were discarded: {}", first.cause));
  auto& metadata = *details.mutable_info()->mutable_metadata();
  metadata["seq"] = std::to_string(first.seq);
  metadata["cause"] = first.cause;
  return details;
}

void VerbQueue::finish_oldest(const v1::VerbResult& result) {
  VerbInFlight verb;  // what it holds ends without the mutex
  const std::lock_guard lock(mutex_);
  verb = std::move(in_flight_.front());
  in_flight_.pop_front();
  if (result.has_optim_step() || verb.drops_gradients) missing_.reset();
  if (!verb.missing.empty() && !missing_) missing_ = {verb.seq, verb.missing};
}

}  // namespace meshloom::control
