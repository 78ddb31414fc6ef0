// SPDX-License-Identifier: Apache-2.0
#include "daemon/comm/failure/mpi_failure_channel.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <list>
#include <vector>

#include "daemon/comm/backoff.h"
#include "daemon/comm/bootstrap/mpi_bootstrap.h"
#include "daemon/comm/mpi_check.h"
#include "kernels/base/error.h"

namespace meshloom::comm {
namespace {

// How often a wait that moves nothing looks for word of a failure.
constexpr auto kLookEvery = std::chrono::microseconds(100);

// What a peer has begun to send comes within this time, unless the peer is stuck.
constexpr auto kMoment = std::chrono::milliseconds(1000);

/// Small enough to travel at once, without the receiver's help, on every transport of Open MPI.
struct Word {
  std::uint64_t epoch = 0;
  std::uint64_t verb = 0;
  std::int32_t rank = -1;
  std::uint32_t bytes = 0;
  std::array<char, FailureChannel::kLongestText> text{};
};

class MpiFailureChannel final : public FailureChannel {
 public:
  MpiFailureChannel(MPI_Comm communicator, std::shared_ptr<MpiLeftovers> leftovers,
                    std::chrono::milliseconds timeout)
      : leftovers_(std::move(leftovers)),
        timeout_(timeout),
        meeting_(make_mpi_bootstrap(communicator, timeout)) {
    check_mpi(MPI_Comm_dup(communicator, &communicator_), "MPI_Comm_dup");
    check_mpi(MPI_Comm_set_errhandler(communicator_, MPI_ERRORS_RETURN), "MPI_Comm_set_errhandler");
    listen();
  }
  ~MpiFailureChannel() override {
    MPI_Cancel(&listening_);
    MPI_Request_free(&listening_);
  }

  int rank() const override { return meeting_->rank(); }

  bool raised(std::uint64_t epoch, std::uint64_t verb, Clock::time_point now) override {
    if (most_urgent_ >= urgency(epoch, verb)) return true;
    if (now - last_look_ < kLookEvery) return false;
    last_look_ = now;
    look();
    return most_urgent_ >= urgency(epoch, verb);
  }

  Failure first(std::uint64_t) override {
    return {first_.rank, std::string(first_.text.data(), first_.bytes)};
  }

  void raise(std::uint64_t epoch, std::uint64_t verb, const std::string& text) override {
    look();
    if (most_urgent_ >= urgency(epoch, verb)) return;  // somebody has told all
    Word word;
    word.epoch = epoch;
    word.verb = verb;
    word.rank = rank();
    word.bytes = static_cast<std::uint32_t>(std::min(text.size(), word.text.size()));
    std::memcpy(word.text.data(), text.data(), word.bytes);
    hear(word);
    sent_.push_back({word, {}});
    Sent& sent = sent_.back();
    for (int peer = 0; peer < meeting_->world_size(); ++peer) {
      if (peer == rank()) continue;
      sent.requests.push_back(MPI_REQUEST_NULL);
      check_mpi(MPI_Isend(&sent.word, sizeof(Word), MPI_BYTE, peer, 0, communicator_,
                          &sent.requests.back()),
                "MPI_Isend");
    }
  }

  bool has_leftovers() const override { return !leftovers_->empty(); }

  void quiesce() override {
    // From here on no rank posts anything on the old communicators.
    meeting_->barrier();
    if (!receives_end(timeout_))
      throw DeadlineExceeded(fmt::format("recovery on rank {}: receives that were given up did "
                                         "not end within {} ms",
                                         rank(), timeout_.count()),
                             "RECOVERY_TIMEOUT");
    meeting_->barrier();
    leftovers_->forget_sends();
  }

  void let_receives_end() override { receives_end(kMoment); }

  std::vector<std::string> exchange(const std::string& mine) override {
    std::erase_if(sent_, [](Sent& sent) {
      int done = 0;
      check_mpi(MPI_Testall(static_cast<int>(sent.requests.size()), sent.requests.data(), &done,
                            MPI_STATUSES_IGNORE),
                "MPI_Testall");
      return done != 0;
    });
    return meeting_->exchange(mine);
  }

  void drain() override {}

 private:
  struct Sent {
    Word word;
    std::vector<MPI_Request> requests;
  };

  bool receives_end(std::chrono::milliseconds patience) {
    const auto deadline = Clock::now() + patience;
    Backoff backoff;
    while (!leftovers_->receives_ended()) {
      if (Clock::now() > deadline) return false;
      backoff.pause();
    }
    return true;
  }

  void listen() {
    check_mpi(MPI_Irecv(&incoming_, sizeof(Word), MPI_BYTE, MPI_ANY_SOURCE, 0, communicator_,
                        &listening_),
              "MPI_Irecv");
  }

  void look() {
    while (true) {
      int done = 0;
      check_mpi(MPI_Test(&listening_, &done, MPI_STATUS_IGNORE), "MPI_Test");
      if (done == 0) return;
      hear(incoming_);
      listen();
    }
  }

  /// Several ranks may fail in one epoch: the first word stands, also if late ones come in later
  /// epochs.
  void hear(const Word& word) {
    if (most_urgent_ < urgency(word.epoch, kAnyVerb)) first_ = word;
    most_urgent_ = std::max(most_urgent_, urgency(word.epoch, word.verb));
  }

  std::shared_ptr<MpiLeftovers> leftovers_;
  std::chrono::milliseconds timeout_;
  std::unique_ptr<Bootstrap> meeting_;
  MPI_Comm communicator_ = MPI_COMM_NULL;
  MPI_Request listening_ = MPI_REQUEST_NULL;
  Word incoming_, first_;
  std::uint64_t most_urgent_ = 0;
  Clock::time_point last_look_;
  std::list<Sent> sent_;
};

}  // namespace

std::unique_ptr<FailureChannel> make_mpi_failure_channel(MPI_Comm communicator,
                                                         std::shared_ptr<MpiLeftovers> leftovers,
                                                         std::chrono::milliseconds timeout) {
  return std::make_unique<MpiFailureChannel>(communicator, std::move(leftovers), timeout);
}

}  // namespace meshloom::comm
