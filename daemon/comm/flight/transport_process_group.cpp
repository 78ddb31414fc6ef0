// SPDX-License-Identifier: Apache-2.0
#include "daemon/comm/flight/transport_process_group.h"

#include <algorithm>
#include <numeric>

#include "daemon/comm/backoff.h"
#include "daemon/comm/group_checks.h"
#include "kernels/base/error.h"

namespace meshloom::comm {
namespace {

// Time between two polls counts as waiting up to this: a rank that computes for longer is not
// waiting.
constexpr auto kLongestPollGap = std::chrono::milliseconds(100);

// Collectives use the lower half of a transport's tags, two each.
constexpr std::uint64_t kCollectiveTags = 1u << 28;

}  // namespace

struct TransportProcessGroup::Flight {
  std::uint64_t sequence = 0;
  const char* name = "";
  std::uint64_t bytes_sent = 0;
  std::unique_ptr<Collective> collective;
  bool done = false;
  bool moving = false;
  std::exception_ptr error;
  std::uint64_t seen_progress = 0;
  Clock::time_point last_poll;
  Clock::duration waited{};
};

/// The user's handle. Dropped before the end, it takes the group with it: the buffers may be gone.
class TransportWork : public Work {
 public:
  TransportWork(TransportProcessGroup& group, std::shared_ptr<TransportProcessGroup::Flight> flight)
      : group_(group), flight_(std::move(flight)) {}

  ~TransportWork() override {
    if (flight_->done || flight_->error) return;
    const std::string why = group_.describe(*flight_) + ": dropped before it was done";
    group_.fail(*flight_, std::make_exception_ptr(FailedPrecondition(why)), why);
    group_.groups_->after_drop(why);
  }

  bool poll() override {
    if (flight_->done) return true;
    if (!flight_->error) group_.groups_->poll_all();
    if (flight_->error) std::rethrow_exception(flight_->error);
    return flight_->done;
  }

  void enqueue_wait(Stream) override { wait_host(); }

  void wait_host() override {
    Backoff backoff;
    std::uint64_t seen = flight_->seen_progress;
    while (!poll()) {
      if (flight_->seen_progress != seen) {
        seen = flight_->seen_progress;
        backoff.reset();
      } else {
        backoff.pause();
      }
    }
  }

 private:
  TransportProcessGroup& group_;
  std::shared_ptr<TransportProcessGroup::Flight> flight_;
};

TransportProcessGroup::TransportProcessGroup(std::unique_ptr<Transport> transport,
                                             GroupOptions options,
                                             std::shared_ptr<RankGroups> groups,
                                             std::vector<int> world_ranks, std::uint64_t key,
                                             bool is_world)
    : transport_(std::move(transport)),
      options_(std::move(options)),
      groups_(std::move(groups)),
      world_ranks_(std::move(world_ranks)),
      key_(key),
      is_world_(is_world) {
  groups_->add(this);
}

TransportProcessGroup::~TransportProcessGroup() {
  groups_->remove(this);
  if (flights_.empty()) {
    if (groups_->has_leftovers()) abandon_scratch();
    return;
  }
  const auto why = [this](const Flight& flight) {
    return describe(flight) + ": the group ended before it was done";
  };
  const std::string first = why(*flights_.front());
  end_flights([&](const Flight& flight) {
    return std::make_exception_ptr(FailedPrecondition(why(flight), "GROUP_POISONED"));
  });
  groups_->after_drop(first);
  if (groups_->has_leftovers()) abandon_scratch();
}

void TransportProcessGroup::end_flights(
    const std::function<std::exception_ptr(const Flight&)>& error_of) {
  const Clock::time_point now = Clock::now();
  while (!flights_.empty()) {
    Flight& flight = *flights_.back();
    flight.error = error_of(flight);
    flight.collective.reset();
    recorder_.set_state(flight.sequence, FlightState::kFailed, now);
    flights_.pop_back();
  }
}

std::shared_ptr<TransportProcessGroup::Flight> TransportProcessGroup::take_off(const char* name,
                                                                               std::size_t bytes) {
  auto flight = std::make_shared<Flight>();
  flight->name = name;
  flight->last_poll = Clock::now();
  flight->sequence = recorder_.issue(name, bytes, flight->last_poll);
  if (TrainingPulse* pulse = groups_->pulse())
    pulse->begin_collective(name, flight->sequence, options_.name);
  return flight;
}

CollectiveContext TransportProcessGroup::context(Flight& flight, Signature signature) {
  // Counts collectives alone: of sends and receives ranks may have different numbers.
  CollectiveContext context =
      this->context(flight, static_cast<int>(collectives_ * 2 % kCollectiveTags));
  signature.sequence = collectives_++;
  context.signature = signature;
  return context;
}

CollectiveContext TransportProcessGroup::context(Flight& flight, int tag) {
  return {*transport_, scratch_, flight.bytes_sent, options_.threads, tag, {}};
}

WorkPtr TransportProcessGroup::launch(std::shared_ptr<Flight> flight,
                                      std::unique_ptr<Collective> collective) {
  flight->collective = std::move(collective);
  flights_.push_back(flight);
  auto work = std::make_unique<TransportWork>(*this, std::move(flight));
  poll();
  groups_->settle_if_noticed();
  return work;
}

void TransportProcessGroup::poll() {
  if (flights_.empty()) return;
  const InTransport mark(groups_->pulse());
  const Clock::time_point now = Clock::now();
  try {
    transport_->progress();
  } catch (const Error& error) {
    fail(*flights_.front(), std::current_exception(), error.what());
    groups_->after_break();
    return;
  }
  for (auto it = flights_.begin(); it != flights_.end();) {
    const std::shared_ptr<Flight> flight = *it;
    if (!flight->error) advance(*flight, now);
    if (!poison_.empty()) return;
    it = flight->done ? flights_.erase(it) : std::next(it);
  }
}

void TransportProcessGroup::advance(Flight& flight, Clock::time_point now) {
  try {
    flight.done = flight.collective->advance();
    const std::uint64_t progress = flight.collective->progress();
    if (TrainingPulse* pulse = groups_->pulse();
        pulse && (flight.done || progress != flight.seen_progress))
      pulse->advance();
    if (flight.done) {
      CommCounter& counter = counters_[flight.name];
      ++counter.calls;
      counter.bytes_sent += flight.bytes_sent;
      ++flight.seen_progress;
      flight.collective.reset();
      recorder_.set_state(flight.sequence, FlightState::kDone, now);
    } else if (progress != flight.seen_progress) {
      flight.seen_progress = progress;
      flight.waited = {};
      flight.last_poll = now;
      if (!flight.moving) recorder_.set_state(flight.sequence, FlightState::kMoving, now);
      flight.moving = true;
    } else if (groups_->raised(now)) {
      groups_->notice();
    } else {
      check_deadline(flight, now);
    }
  } catch (const SignatureDiffers& difference) {
    fail_for_all(flight, difference);
  } catch (const Error& error) {
    fail(flight, std::current_exception(), error.what());
    groups_->after_break();
  }
}

void TransportProcessGroup::fail_for_all(Flight& flight, const SignatureDiffers& difference) {
  const std::string mine = to_string(difference.mine()), theirs = to_string(difference.theirs());
  const std::string text = fmt::format(
      "group '{}': the ranks are in different collectives: rank {} in {}, rank {} in {}",
      options_.name, rank_text(rank()), mine, rank_text(difference.peer()), theirs);
  flight.error =
      std::make_exception_ptr(InternalError(text, "COLLECTIVE_MISMATCH",
                                            {{"group", options_.name},
                                             {"rank", std::to_string(rank())},
                                             {"collective", mine},
                                             {"other_rank", std::to_string(difference.peer())},
                                             {"other_collective", theirs}}));
  groups_->raise_for_all(text);
}

PeerFailed TransportProcessGroup::peer_failed(const std::string& what) const {
  const Failure& failure = *groups_->noticed();
  return {fmt::format("{}: given up, since rank {} failed: {}", what, failure.rank, failure.text),
          failure};
}

void TransportProcessGroup::check_deadline(Flight& flight, Clock::time_point now) {
  if (options_.abort != nullptr && options_.abort->raised.load(std::memory_order_acquire))
    throw Aborted(describe(flight) + ": given up, since the abort flag was raised",
                  "COLLECTIVE_ABORTED");
  flight.waited += std::min<Clock::duration>(now - flight.last_poll, kLongestPollGap);
  flight.last_poll = now;
  if (flight.waited < options_.timeout) return;
  const std::string missing = peers_text(flight.collective->missing());
  throw DeadlineExceeded(fmt::format("{}: nothing moved for {} ms; missing {}", describe(flight),
                                     options_.timeout.count(), missing),
                         "COLLECTIVE_TIMEOUT",
                         {{"collective", flight.name},
                          {"sequence", std::to_string(flight.sequence)},
                          {"group", options_.name},
                          {"rank", std::to_string(rank())},
                          {"missing", missing},
                          {"timeout_ms", std::to_string(options_.timeout.count())}});
}

void TransportProcessGroup::fail(const Flight& flight, const std::exception_ptr& error,
                                 const std::string& why) {
  if (poison_.empty()) poison_ = why;
  end_flights([&](const Flight& other) {
    if (&other == &flight) return error;
    return std::make_exception_ptr(
        FailedPrecondition(fmt::format("{}: the group failed before: {}", describe(other), poison_),
                           "GROUP_POISONED"));
  });
}

std::string TransportProcessGroup::describe(const Flight& flight) const {
  return fmt::format("{} #{} of group '{}' on rank {} of {}", flight.name, flight.sequence,
                     options_.name, rank(), size());
}

std::string TransportProcessGroup::rank_text(int rank) const {
  const int world = world_ranks_[static_cast<std::size_t>(rank)];
  return world == rank ? std::to_string(rank) : fmt::format("{} (world rank {})", rank, world);
}

std::string TransportProcessGroup::peers_text(const std::vector<int>& peers) const {
  std::vector<std::string> texts;
  for (const int peer : peers) texts.push_back(rank_text(peer));
  return fmt::format("rank{} {}", peers.size() == 1 ? "" : "s", fmt::join(texts, ", "));
}

TransportProcessGroup::Standing TransportProcessGroup::standing() const {
  Standing standing{key_, key_, size(), collectives_, recorder_.next_sequence(), true, 0};
  for (const int rank : world_ranks_)
    standing.members = mix(standing.members + static_cast<std::uint64_t>(rank));
  standing.whole = ended_ || (flights_.empty() && poison_.empty());
  standing.unmatched = ended_ ? 0 : unmatched_;
  return standing;
}

std::string TransportProcessGroup::last_text() const {
  return fmt::format("{} #{} of group '{}'", recorder_.last_name(), recorder_.next_sequence() - 1,
                     options_.name);
}

void TransportProcessGroup::give_up() {
  if (flights_.empty()) return;
  poison_ = peer_failed(describe(*flights_.front())).what();
  end_flights([&](const Flight& flight) {
    return flight.error ? flight.error : std::make_exception_ptr(peer_failed(describe(flight)));
  });
}

void TransportProcessGroup::start_over(std::uint64_t sequence, const std::string& cause) {
  if (!is_world_) {
    if (poison_.empty()) poison_ = cause;
    ended_ = true;
    return;
  }
  transport_->renew();
  recorder_.skip_to(sequence);
  // A split may have failed on some ranks alone; every split takes a number of the sequence.
  splits_ = sequence;
  collectives_ = 0;
  unmatched_ = 0;
  poison_.clear();
}

void TransportProcessGroup::check_usable(const char* name) {
  if (groups_->noticed() && !ended_) {
    groups_->settle_if_noticed();
    throw peer_failed(fmt::format("{} in group '{}'", name, options_.name));
  }
  if (!poison_.empty())
    throw FailedPrecondition(
        fmt::format("{} in group '{}': the group failed before: {}", name, options_.name, poison_),
        "GROUP_POISONED");
}

std::unique_ptr<ProcessGroup> TransportProcessGroup::split(
    const std::vector<std::vector<int>>& parts, const std::string& name) {
  check_usable("split");
  check_partition(parts, size());
  check(flights_.empty(), "split of group '{}': {} collectives are in flight", options_.name,
        flights_.size());
  // All are here, within the deadline, before the transport may block.
  barrier()->wait_host();
  const std::uint64_t key = mix(key_ + mix(++splits_));
  const std::vector<int>& mine = part_of(parts, rank());
  GroupOptions options = options_;
  options.name = name;
  std::vector<int> world_ranks;
  for (const int member : mine)
    world_ranks.push_back(world_ranks_[static_cast<std::size_t>(member)]);
  auto transport = transport_->split(parts, key);
  if (mine.size() == 1) return make_single_process_group(options);
  return std::make_unique<TransportProcessGroup>(std::move(transport), options, groups_,
                                                 std::move(world_ranks), key, false);
}

CommCounter TransportProcessGroup::counter(const std::string& collective) const {
  const auto found = counters_.find(collective);
  return found == counters_.end() ? CommCounter{} : found->second;
}

void TransportProcessGroup::reset_counters() { counters_.clear(); }

std::unique_ptr<ProcessGroup> make_transport_group(std::unique_ptr<Transport> transport,
                                                   const GroupOptions& options,
                                                   std::shared_ptr<RankGroups> groups) {
  if (transport->size() == 1) return make_single_process_group(options);
  std::vector<int> world_ranks(static_cast<std::size_t>(transport->size()));
  std::iota(world_ranks.begin(), world_ranks.end(), 0);
  const std::uint64_t key = groups->next_world();
  return std::make_unique<TransportProcessGroup>(std::move(transport), options, std::move(groups),
                                                 std::move(world_ranks), key, true);
}

}  // namespace meshloom::comm
