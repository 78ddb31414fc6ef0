// SPDX-License-Identifier: Apache-2.0
#include "daemon/comm/failure/shared_memory_failure_channel.h"

#include <algorithm>
#include <cstring>

#include "daemon/comm/backoff.h"
#include "kernels/base/error.h"

namespace meshloom::comm {
namespace {

class SharedMemoryFailureChannel final : public FailureChannel {
 public:
  SharedMemoryFailureChannel(std::shared_ptr<const FailureField> field,
                             std::shared_ptr<RingEndpoint> endpoint,
                             std::chrono::milliseconds timeout, bool quiesces)
      : field_(std::move(field)),
        endpoint_(std::move(endpoint)),
        timeout_(timeout),
        quiesces_(quiesces) {}

  // A rank that ends touches nothing any more, whether it has heard of a failure or not.
  ~SharedMemoryFailureChannel() override {
    seat_of(rank()).quiet.store(Seat::kLeft, std::memory_order_release);
  }

  int rank() const override { return endpoint_->rank(); }

  bool raised(std::uint64_t epoch, std::uint64_t verb, Clock::time_point) override {
    return field_->board->raised.load(std::memory_order_relaxed) >= urgency(epoch, verb);
  }

  Failure first(std::uint64_t epoch) override {
    FailureBoard& board = *field_->board;
    // Its claimer is between two stores.
    while (board.written.load(std::memory_order_acquire) <= epoch) sched_yield();
    const FailureBoard::Text& text = board.texts[epoch % 2];
    return {text.rank, std::string(text.text, text.bytes)};
  }

  void raise(std::uint64_t epoch, std::uint64_t verb, const std::string& failure) override {
    FailureBoard& board = *field_->board;
    std::uint64_t before = epoch;
    if (board.claimed.compare_exchange_strong(before, epoch + 1)) {
      FailureBoard::Text& text = board.texts[epoch % 2];
      text.rank = rank();
      text.bytes = static_cast<std::uint32_t>(std::min(failure.size(), kLongestText));
      std::memcpy(text.text, failure.data(), text.bytes);
      board.written.store(epoch + 1, std::memory_order_release);
    }
    const std::uint64_t mine = urgency(epoch, verb);
    std::uint64_t seen = board.raised.load();
    while (seen < mine && !board.raised.compare_exchange_weak(seen, mine)) {
    }
  }

  bool has_leftovers() const override { return false; }
  // Over rings a rank touches its own buffers alone, and only for requests that it has.
  void quiesce() override {
    if (!quiesces_) return;
    seat_of(rank()).quiet.store(++quiesced_, std::memory_order_release);
    for (int r = 0; r < field_->world_size; ++r) wait_for(seat_of(r).quiet, quiesced_, r);
  }
  void let_receives_end() override {}

  std::vector<std::string> exchange(const std::string& mine) override {
    const auto ranks = static_cast<std::size_t>(field_->world_size);
    std::vector<std::string> all(ranks);
    std::size_t begin = 0;
    std::uint64_t longest = 0;
    do {
      // Nobody is behind with what lies in this seat.
      for (int r = 0; r < field_->world_size; ++r) wait_for(seat_of(r).read, round_, r);
      ++round_;
      Seat& own = seat_of(rank());
      const std::size_t at = std::min(begin, mine.size());
      own.total = mine.size();
      own.begin = at;
      std::memcpy(own.text, mine.data() + at, std::min(Seat::kBytes, mine.size() - at));
      own.written.store(round_, std::memory_order_release);

      longest = 0;
      for (std::size_t r = 0; r < ranks; ++r) {
        const Seat& seat = seat_of(static_cast<int>(r));
        wait_for(seat.written, round_, static_cast<int>(r));
        all[r].append(seat.text, std::min<std::size_t>(Seat::kBytes, seat.total - seat.begin));
        longest = std::max(longest, seat.total);
      }
      own.read.store(round_, std::memory_order_release);
      begin += Seat::kBytes;
    } while (begin < longest);
    return all;
  }

  void drain() override { endpoint_->reset(); }

 private:
  Seat& seat_of(int rank) const { return field_->seats[rank]; }

  void wait_for(const std::atomic<std::uint64_t>& counter, std::uint64_t value, int peer) const {
    if (counter.load(std::memory_order_acquire) >= value) return;
    const auto deadline = Clock::now() + timeout_;
    Backoff backoff;
    while (counter.load(std::memory_order_acquire) < value) {
      if (Clock::now() > deadline)
        throw DeadlineExceeded(fmt::format("recovery on rank {}: rank {} did not come within {} ms",
                                           rank(), peer, timeout_.count()),
                               "RECOVERY_TIMEOUT", {{"missing", std::to_string(peer)}});
      backoff.pause();
    }
  }

  std::shared_ptr<const FailureField> field_;
  std::shared_ptr<RingEndpoint> endpoint_;
  std::chrono::milliseconds timeout_;
  bool quiesces_;
  std::uint64_t round_ = 0;
  std::uint64_t quiesced_ = 0;
};

}  // namespace

std::unique_ptr<FailureChannel> make_shared_memory_failure_channel(
    std::shared_ptr<const FailureField> field, std::shared_ptr<RingEndpoint> endpoint,
    std::chrono::milliseconds timeout, bool quiesces) {
  return std::make_unique<SharedMemoryFailureChannel>(std::move(field), std::move(endpoint),
                                                      timeout, quiesces);
}

}  // namespace meshloom::comm
