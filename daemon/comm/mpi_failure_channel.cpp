// SPDX-License-Identifier: Apache-2.0
#include "daemon/comm/mpi_failure_channel.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <list>
#include <vector>

#include "daemon/comm/backoff.h"
#include "daemon/comm/mesh/mpi_bootstrap.h"
#include "daemon/comm/mpi_transport.h"
#include "kernels/base/error.h"

namespace meshloom::comm {
namespace {

// How often a wait that moves nothing looks for word of a failure.
constexpr auto kLookEvery = std::chrono::microseconds(100);

/// Small enough to travel at once, without the receiver's help, on every transport of Open MPI.
struct Word {
  std::uint64_t epoch = 0;
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

  bool raised(std::uint64_t epoch, Clock::time_point now) override {
    if (heard_ && first_.epoch >= epoch) return true;
    if (now - last_look_ < kLookEvery) return false;
    last_look_ = now;
    look();
    return heard_ && first_.epoch >= epoch;
  }

  Failure first(std::uint64_t) override {
    return {first_.rank, std::string(first_.text.data(), first_.bytes)};
  }

  void raise(std::uint64_t epoch, const std::string& text) override {
    look();
    if (heard_ && first_.epoch >= epoch) return;  // whoever was first has told all
    first_.epoch = epoch;
    first_.rank = rank();
    first_.bytes = static_cast<std::uint32_t>(std::min(text.size(), first_.text.size()));
    std::memcpy(first_.text.data(), text.data(), first_.bytes);
    heard_ = true;
    sent_.push_back({first_, {}});
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
    const auto deadline = Clock::now() + timeout_;
    Backoff backoff;
    while (!leftovers_->receives_ended()) {
      if (Clock::now() > deadline)
        throw DeadlineExceeded(fmt::format("recovery on rank {}: receives that were given up did "
                                           "not end within {} ms",
                                           rank(), timeout_.count()),
                               "RECOVERY_TIMEOUT");
      backoff.pause();
    }
    meeting_->barrier();
    leftovers_->forget_sends();
  }

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
      // Several ranks may fail in one epoch: the first word stands, also where late ones come in
      // later epochs.
      if (!heard_ || incoming_.epoch > first_.epoch) first_ = incoming_;
      heard_ = true;
      listen();
    }
  }

  std::shared_ptr<MpiLeftovers> leftovers_;
  std::chrono::milliseconds timeout_;
  std::unique_ptr<Bootstrap> meeting_;
  MPI_Comm communicator_ = MPI_COMM_NULL;
  MPI_Request listening_ = MPI_REQUEST_NULL;
  Word incoming_, first_;
  bool heard_ = false;
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
