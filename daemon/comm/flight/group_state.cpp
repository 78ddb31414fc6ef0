// SPDX-License-Identifier: Apache-2.0
#include "daemon/comm/flight/group_state.h"

#include <algorithm>

#include "daemon/comm/backoff.h"
#include "daemon/comm/diagnosis/diagnosis.h"
#include "kernels/base/error.h"

namespace meshloom::comm {
namespace {

// Time between two polls counts as waiting up to this: a rank that computes for longer is not
// waiting.
constexpr auto kLongestPollGap = std::chrono::milliseconds(100);

void add(CommCounter& sum, const CommCounter& one) {
  sum.calls += one.calls;
  sum.bytes_sent += one.bytes_sent;
  sum.bytes_staged += one.bytes_staged;
}

}  // namespace

struct GroupState::InFlight {
  CollectiveKind kind = CollectiveKind::kNone;
  std::uint64_t sequence = 0;
  std::int64_t number = -1;  ///< that all ranks agree on; -1: a send or a receive
  FlightLog::Ticket ticket = 0;
  std::uint64_t bytes_sent = 0;
  std::uint64_t bytes_staged = 0;
  std::unique_ptr<Collective> collective;
  std::optional<GroupDevice> device;  ///< of the group, if results are in its memory
  bool done = false;
  bool moving = false;
  std::exception_ptr error;
  std::uint64_t seen_progress = 0;
  Clock::time_point last_poll;
  Clock::duration waited{};
};

/// The user's handle. Dropped before the end, it takes the group with it: the buffers may be gone.
class InFlightWork : public Work {
 public:
  InFlightWork(GroupState& group, std::shared_ptr<GroupState::InFlight> one)
      : group_(group), one_(std::move(one)) {}

  ~InFlightWork() override {
    if (one_->done || one_->error) return;
    const std::string why = group_.describe(*one_) + ": dropped before it was done";
    group_.fail(*one_, std::make_exception_ptr(FailedPrecondition(why)), why);
    group_.groups_->after_drop(why);
  }

  bool poll() override {
    if (one_->done) return true;
    if (!one_->error) group_.groups_->poll_all();
    if (one_->error) std::rethrow_exception(one_->error);
    return one_->done;
  }

  void enqueue_wait(Stream stream) override {
    wait_host();
    if (one_->device) order_behind(*one_->device, stream);
  }

  void wait_host() override {
    Backoff backoff;
    std::uint64_t seen = one_->seen_progress;
    while (!poll()) {
      if (one_->seen_progress != seen) {
        seen = one_->seen_progress;
        backoff.reset();
      } else {
        backoff.pause();
      }
    }
  }

 private:
  GroupState& group_;
  std::shared_ptr<GroupState::InFlight> one_;
};

GroupState::GroupState(std::unique_ptr<Algorithms> algorithms, GroupOptions options,
                       std::shared_ptr<RankGroups> groups, GroupPlace place)
    : algorithms_(std::move(algorithms)),
      options_(std::move(options)),
      groups_(std::move(groups)),
      place_(std::move(place)),
      recorder_(groups_->flight().own(), options_.name, id(), place_.world_ranks) {
  groups_->add(this);
  if (TrainingPulse* pulse = groups_->pulse()) name_in_pulse_ = pulse->keep_name(options_.name);
}

GroupState::~GroupState() {
  groups_->remove(this);
  if (!in_flight_.empty()) {
    const auto why = [this](const InFlight& one) {
      return describe(one) + ": the group ended before it was done";
    };
    const std::string first = why(*in_flight_.front());
    end_all([&](const InFlight& one) {
      return std::make_exception_ptr(FailedPrecondition(why(one), "GROUP_POISONED"));
    });
    groups_->after_drop(first);
  }
  if (groups_->has_leftovers()) abandon_memory();
}

void GroupState::check_usable(const char* name) {
  if (groups_->noticed() && !ended_) {
    groups_->give_up_if_noticed();
    throw peer_failed(fmt::format("{} in group '{}'", name, options_.name));
  }
  if (!poison_.empty())
    std::rethrow_exception(poisoned(fmt::format("{} in group '{}'", name, options_.name)));
}

WorkPtr GroupState::issue(Call call) {
  const CollectiveKind kind = call.signature.kind;
  auto one = std::make_shared<InFlight>();
  one->kind = kind;
  one->last_poll = Clock::now();
  // Collectives alone have a number that all ranks agree on: of sends and receives ranks may have
  // different numbers.
  if (kind == CollectiveKind::kSend) {
    ++unmatched_;
  } else if (kind == CollectiveKind::kRecv) {
    --unmatched_;
  } else {
    one->number = static_cast<std::int64_t>(first_number_ + collectives_);
    call.signature.sequence = collectives_++;
  }
  const FlightRecorder::Issued issued =
      recorder_.issue(call.signature, one->number, call.peer, call.bytes, one->last_poll);
  one->sequence = issued.sequence;
  one->ticket = issued.ticket;
  if (TrainingPulse* pulse = groups_->pulse())
    pulse->begin_collective(kind_name(kind), one->sequence, name_in_pulse_);
  const auto on_device = [](const TensorView& view) { return view.device != kCpuDevice; };
  if (options_.device && std::any_of(call.outputs.begin(), call.outputs.end(), on_device))
    one->device = options_.device;
  call.bytes_sent = &one->bytes_sent;
  call.bytes_staged = &one->bytes_staged;
  try {
    one->collective = algorithms_->start(call);
  } catch (const Error& error) {
    // Its number is taken, which the other ranks wait for: this rank cannot go on with the next.
    in_flight_.push_back(one);
    fail_as_recorded(*one, error);
    std::rethrow_exception(one->error);
  }
  in_flight_.push_back(one);
  const Clock::time_point now = one->last_poll;
  auto work = std::make_unique<InFlightWork>(*this, std::move(one));
  poll_at(now);
  groups_->give_up_if_noticed();
  return work;
}

void GroupState::poll_at(Clock::time_point now) {
  const InTransport mark(groups_->pulse());
  try {
    algorithms_->progress();
  } catch (const Error& error) {
    fail_as_recorded(*in_flight_.front(), error);
    return;
  }
  for (auto it = in_flight_.begin(); it != in_flight_.end();) {
    const std::shared_ptr<InFlight> one = *it;
    if (!one->error) advance(*one, now);
    if (!poison_.empty()) return;
    it = one->done ? in_flight_.erase(it) : std::next(it);
  }
}

void GroupState::advance(InFlight& one, Clock::time_point now) {
  try {
    one.done = one.collective->advance();
    const std::uint64_t progress = one.collective->progress();
    const bool moved = progress != one.seen_progress;
    if (TrainingPulse* pulse = groups_->pulse(); pulse && (one.done || moved)) pulse->advance();
    if (one.done) {
      CommCounter& counter = counters_[static_cast<std::size_t>(one.kind)];
      ++counter.calls;
      counter.bytes_sent += one.bytes_sent;
      counter.bytes_staged += one.bytes_staged;
      ++one.seen_progress;
      one.collective.reset();
      recorder_.set_state(one.ticket, FlightState::kDone, now);
    } else if (moved) {
      one.seen_progress = progress;
      one.waited = {};
      one.last_poll = now;
      if (!one.moving) recorder_.set_state(one.ticket, FlightState::kStarted, now);
      one.moving = true;
    } else if (groups_->raised(now)) {
      groups_->notice();
    } else {
      check_deadline(one, now);
    }
  } catch (const SignatureDiffers& difference) {
    fail_for_all(one, difference);
  } catch (const Error& error) {
    fail_as_recorded(one, error);
  }
}

CommCounter GroupState::counter(const std::string& name) const {
  CommCounter sum;
  for (std::size_t kind = 0; kind < counters_.size(); ++kind)
    if (name == counter_name(static_cast<CollectiveKind>(kind))) add(sum, counters_[kind]);
  return sum;
}

std::map<std::string, CommCounter> GroupState::counters() const {
  std::map<std::string, CommCounter> named;
  for (std::size_t kind = 0; kind < counters_.size(); ++kind)
    if (counters_[kind].calls > 0)
      add(named[counter_name(static_cast<CollectiveKind>(kind))], counters_[kind]);
  return named;
}

void GroupState::check_deadline(InFlight& one, Clock::time_point now) {
  if (options_.abort != nullptr && options_.abort->raised.load(std::memory_order_acquire))
    throw Aborted(describe(one) + ": given up, since the abort flag was raised",
                  "COLLECTIVE_ABORTED");
  // In another group this rank may still be waited for.
  if (const auto record = groups_->aborted(); record && record->group_id == id()) {
    broken_ = true;
    fail(one, error_of(one, *record, nullptr), record->text);
    groups_->after_break();
    return;
  }
  if (!one.collective->waits()) {
    one.last_poll = now;
    return;
  }
  one.waited += std::min<Clock::duration>(now - one.last_poll, kLongestPollGap);
  one.last_poll = now;
  if (one.waited < options_.timeout) return;
  const std::vector<int> ranks = one.collective->missing();
  const std::string missing = ranks_text(ranks);
  std::string known;
  for (const int rank : ranks)
    if (const std::string about = one.collective->about(rank); !about.empty())
      known += fmt::format("; rank {}: {}", rank_text(rank), about);
  throw DeadlineExceeded(fmt::format("{}: nothing moved for {} ms; missing {}{}", describe(one),
                                     options_.timeout.count(), missing, known),
                         "COLLECTIVE_TIMEOUT",
                         {{"collective", kind_name(one.kind)},
                          {"sequence", std::to_string(one.sequence)},
                          {"group", options_.name},
                          {"rank", std::to_string(algorithms_->rank())},
                          {"missing", missing},
                          {"timeout_ms", std::to_string(options_.timeout.count())}});
}

void GroupState::fail(const InFlight& one, const std::exception_ptr& error,
                      const std::string& why) {
  if (poison_.empty()) poison_ = why;
  end_all(
      [&](const InFlight& other) { return &other == &one ? error : poisoned(describe(other)); });
}

void GroupState::fail_as_recorded(const InFlight& one, const Error& error) {
  std::exception_ptr shown = std::current_exception();
  std::string why = error.what();
  // A peer that failed has told so itself.
  const bool abandoned =
      error.kind() == ErrorKind::kAborted && dynamic_cast<const PeerFailed*>(&error) == nullptr;
  if (abandoned || error.kind() == ErrorKind::kDeadlineExceeded ||
      error.kind() == ErrorKind::kComm) {
    broken_ = true;
    const AbortRecord record = groups_->abort(record_of(one, error));
    shown = error_of(one, record, &error);
    why = record.text;
  }
  fail(one, shown, why);
  groups_->after_break();
}

AbortRecord GroupState::record_of(const InFlight& one, const Error& error) const {
  AbortRecord record;
  record.rank = place_.world_ranks[static_cast<std::size_t>(algorithms_->rank())];
  record.kind = error.kind();
  record.reason = error.reason();
  record.collective = kind_name(one.kind);
  record.sequence = one.sequence;
  record.group = options_.name;
  record.group_id = id();
  if (const auto missing = error.metadata().find("missing"); missing != error.metadata().end())
    record.missing = missing->second;
  record.text = error.what();
  if (record.text.find(describe(one)) == std::string::npos)
    record.text = describe(one) + ": " + record.text;
  const FlightReport report = read_flight_report(groups_->flight());
  if (const OpenCollective* open = find_open(report, record.group_id, one.number, record.rank))
    record.root_cause = open->root_cause;
  if (!record.root_cause.empty()) record.text += "; root cause: " + record.root_cause;
  return record;
}

std::exception_ptr GroupState::error_of(const InFlight& one, const AbortRecord& record,
                                        const Error* own) const {
  const int rank = algorithms_->rank();
  const bool mine = record.rank == place_.world_ranks[static_cast<std::size_t>(rank)] &&
                    record.group_id == id() && record.sequence == one.sequence;
  std::string text = record.text;
  if (!mine)
    text = own != nullptr
               ? fmt::format("{}; rank {} found first: {}", own->what(), record.rank, record.text)
               : fmt::format("{}: given up, as rank {} found: {}", describe(one), record.rank,
                             record.text);
  Error::Metadata metadata;
  if (own != nullptr) metadata = own->metadata();
  metadata.insert({{"collective", kind_name(one.kind)},
                   {"sequence", std::to_string(one.sequence)},
                   {"group", options_.name},
                   {"rank", std::to_string(rank)},
                   {"missing", record.missing},
                   {"root_cause", record.root_cause},
                   {"recorded_by", std::to_string(record.rank)}});
  const ErrorKind kind = own != nullptr ? own->kind() : record.kind;
  const std::string reason = own != nullptr ? own->reason() : record.reason;
  if (kind == ErrorKind::kAborted)
    return std::make_exception_ptr(Aborted(text, reason, std::move(metadata)));
  if (kind == ErrorKind::kComm)
    return std::make_exception_ptr(CommError(text, reason, std::move(metadata)));
  return std::make_exception_ptr(DeadlineExceeded(text, reason, std::move(metadata)));
}

void GroupState::fail_for_all(InFlight& one, const SignatureDiffers& difference) {
  const int rank = algorithms_->rank();
  const std::string mine = to_string(difference.mine()), theirs = to_string(difference.theirs());
  const std::string text = fmt::format(
      "group '{}': the ranks are in different collectives: rank {} in {}, rank {} in {}",
      options_.name, rank_text(rank), mine, rank_text(difference.peer()), theirs);
  one.error =
      std::make_exception_ptr(InternalError(text, "COLLECTIVE_MISMATCH",
                                            {{"group", options_.name},
                                             {"rank", std::to_string(rank)},
                                             {"collective", mine},
                                             {"other_rank", std::to_string(difference.peer())},
                                             {"other_collective", theirs}}));
  groups_->raise_for_all(text);
}

void GroupState::end_all(const std::function<std::exception_ptr(const InFlight&)>& error_of) {
  const Clock::time_point now = Clock::now();
  while (!in_flight_.empty()) {
    InFlight& one = *in_flight_.back();
    one.error = error_of(one);
    one.collective.reset();
    recorder_.set_state(one.ticket, FlightState::kFailed, now);
    in_flight_.pop_back();
  }
}

GroupStanding GroupState::standing() const {
  GroupStanding standing{id(), algorithms_->size(), collectives_, recorder_.next_sequence(), true,
                         0};
  standing.whole = ended_ || (in_flight_.empty() && poison_.empty());
  standing.unmatched = ended_ ? 0 : unmatched_;
  return standing;
}

std::optional<RecoverableGroup::LastIssued> GroupState::last_issued() const {
  if (recorder_.next_sequence() == 0) return std::nullopt;
  return LastIssued{recorder_.last_issue(),
                    fmt::format("{} #{} of group '{}'", recorder_.last_name(),
                                recorder_.next_sequence() - 1, options_.name)};
}

void GroupState::give_up() {
  if (in_flight_.empty()) return;
  poison_ = peer_failed(describe(*in_flight_.front())).what();
  end_all([&](const InFlight& one) {
    return one.error ? one.error : std::make_exception_ptr(peer_failed(describe(one)));
  });
}

void GroupState::start_over(std::uint64_t sequence, const std::string& cause) {
  if (!place_.is_world) {
    if (poison_.empty()) poison_ = cause;
    ended_ = true;
    return;
  }
  algorithms_->renew();
  recorder_.skip_to(sequence);
  first_number_ = sequence;
  collectives_ = 0;
  unmatched_ = 0;
  poison_.clear();
  broken_ = false;
}

PeerFailed GroupState::peer_failed(const std::string& what) const {
  const Failure& failure = *groups_->noticed();
  return {fmt::format("{}: given up, since rank {} failed: {}", what, failure.rank, failure.text),
          failure};
}

std::exception_ptr GroupState::poisoned(const std::string& call) const {
  const std::string text = fmt::format("{}: the group failed before: {}", call, poison_);
  if (broken_ && !ended_) return std::make_exception_ptr(GroupBroken(text));
  return std::make_exception_ptr(FailedPrecondition(text, "GROUP_POISONED"));
}

std::string GroupState::describe(const InFlight& one) const {
  return fmt::format("{} #{} of group '{}' on rank {} of {}", kind_name(one.kind), one.sequence,
                     options_.name, algorithms_->rank(), algorithms_->size());
}

std::string GroupState::rank_text(int rank) const {
  const int world = place_.world_ranks[static_cast<std::size_t>(rank)];
  return world == rank ? std::to_string(rank) : fmt::format("{} (world rank {})", rank, world);
}

std::string GroupState::ranks_text(const std::vector<int>& ranks) const {
  std::vector<std::string> texts;
  for (const int rank : ranks) texts.push_back(rank_text(rank));
  return fmt::format("rank{} {}", ranks.size() == 1 ? "" : "s", fmt::join(texts, ", "));
}

}  // namespace meshloom::comm
