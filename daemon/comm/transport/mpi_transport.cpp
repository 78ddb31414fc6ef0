// SPDX-License-Identifier: Apache-2.0
#include "daemon/comm/transport/mpi_transport.h"

#include <algorithm>
#include <cstring>
#include <vector>

#include "daemon/comm/mpi_check.h"
#include "kernels/base/error.h"

namespace meshloom::comm {
namespace {

// Up to here one message carries signature and data: a copy costs less than a second message.
constexpr std::size_t kEnclosedBytes = 8 * 1024;
// Above all tags of collectives and users.
constexpr int kEnvelopeTag = 1 << 30;

class MpiTransport : public Transport {
 public:
  /// Takes the communicator over.
  MpiTransport(MPI_Comm communicator, std::shared_ptr<MpiLeftovers> leftovers)
      : communicator_(communicator), leftovers_(std::move(leftovers)) {
    check_mpi(MPI_Comm_set_errhandler(communicator_, MPI_ERRORS_RETURN), "MPI_Comm_set_errhandler");
    check_mpi(MPI_Comm_rank(communicator_, &rank_), "MPI_Comm_rank");
    check_mpi(MPI_Comm_size(communicator_, &size_), "MPI_Comm_size");
  }
  // The communicator is left to MPI_Finalize: freeing it waits for the other ranks.
  ~MpiTransport() override = default;

  int rank() const override { return rank_; }
  int size() const override { return size_; }

  Request send(const std::byte* data, std::size_t bytes, int peer, int tag,
               const Signature* signature) override {
    check_free_to_move();
    const Request request = new_slot(false);
    Slot& slot = requests_[request];
    if (signature != nullptr) {
      slot.envelope = take_envelope();
      slot.envelope->signature = *signature;
      const std::size_t within = bytes <= kEnclosedBytes ? bytes : 0;
      if (within > 0) std::memcpy(slot.envelope->data, data, within);
      check_mpi(MPI_Isend(slot.envelope.get(), static_cast<int>(sizeof(Signature) + within),
                          MPI_BYTE, peer, tag + kEnvelopeTag, communicator_, &slot.first),
                "MPI_Isend");
      if (bytes == within) return request;
    }
    check_mpi(
        MPI_Isend(data, static_cast<int>(bytes), MPI_BYTE, peer, tag, communicator_, &slot.body),
        "MPI_Isend");
    return request;
  }
  Request recv(std::byte* data, std::size_t bytes, int peer, int tag,
               const Signature* signature) override {
    check_free_to_move();
    const Request request = new_slot(true);
    Slot& slot = requests_[request];
    slot.data = data;
    slot.bytes = bytes;
    slot.peer = peer;
    slot.tag = tag;
    if (signature != nullptr) {
      slot.envelope = take_envelope();
      slot.expected = *signature;
      unopened_.push_back(request);
      // Large enough for whatever the peer takes the collective to be.
      check_mpi(MPI_Irecv(slot.envelope.get(), static_cast<int>(sizeof(Envelope)), MPI_BYTE, peer,
                          tag + kEnvelopeTag, communicator_, &slot.first),
                "MPI_Irecv");
      return request;
    }
    slot.deferred = std::any_of(unopened_.begin(), unopened_.end(), [&](Request r) {
      return requests_[r].peer == peer && requests_[r].tag == tag;
    });
    if (!slot.deferred) {
      post_body(slot);
    } else {
      deferred_.push_back(request);
    }
    return request;
  }
  // MPI_Test moves everything by itself.
  void progress() override {}

  bool test(Request request) override {
    check_free_to_move();
    Slot& slot = requests_[request];
    if (slot.first != MPI_REQUEST_NULL) {
      if (!ended(slot.first)) return false;
      if (slot.receive) open_envelope(request);
    }
    if (slot.deferred || (slot.body != MPI_REQUEST_NULL && !ended(slot.body))) return false;
    release(request);
    return true;
  }

  void cancel(Request request) override {
    Slot& slot = requests_[request];
    leftovers_->give_up(slot.body, slot.receive, nullptr);
    if (slot.first != MPI_REQUEST_NULL)
      leftovers_->give_up(slot.first, slot.receive, std::move(slot.envelope));
    slot.first = slot.body = MPI_REQUEST_NULL;
    std::erase(unopened_, request);
    std::erase(deferred_, request);
    release(request);
  }

  std::unique_ptr<Transport> split(const std::vector<std::vector<int>>& parts,
                                   std::uint64_t) override {
    int color = 0, key = 0;
    for (std::size_t p = 0; p < parts.size(); ++p) {
      const auto member = std::find(parts[p].begin(), parts[p].end(), rank_);
      if (member == parts[p].end()) continue;
      color = static_cast<int>(p);
      key = static_cast<int>(member - parts[p].begin());
    }
    MPI_Comm part = MPI_COMM_NULL;
    check_mpi(MPI_Comm_split(communicator_, color, key, &part), "MPI_Comm_split");
    return std::make_unique<MpiTransport>(part, leftovers_);
  }

  void renew() override {
    // What is unread stays with the old communicator, whose number is not used again.
    MPI_Comm fresh = MPI_COMM_NULL;
    check_mpi(MPI_Comm_dup(communicator_, &fresh), "MPI_Comm_dup");
    check_mpi(MPI_Comm_set_errhandler(fresh, MPI_ERRORS_RETURN), "MPI_Comm_set_errhandler");
    communicator_ = fresh;
  }

 private:
  /// The first message between two ranks in a collective. What is small goes with its signature.
  struct Envelope {
    Signature signature;
    std::byte data[kEnclosedBytes];
  };
  struct Slot {
    MPI_Request first = MPI_REQUEST_NULL, body = MPI_REQUEST_NULL;
    bool receive = false;
    std::shared_ptr<Envelope> envelope;
    Signature expected = {};
    std::byte* data = nullptr;
    std::size_t bytes = 0;
    int peer = 0, tag = 0;
    bool deferred = false;
  };

  Request new_slot(bool receive) {
    if (free_.empty()) {
      free_.push_back(static_cast<Request>(requests_.size()));
      requests_.emplace_back();
    }
    const Request slot = free_.back();
    free_.pop_back();
    requests_[slot].receive = receive;
    requests_[slot].deferred = false;
    return slot;
  }
  void release(Request request) {
    Slot& slot = requests_[request];
    if (slot.envelope) envelopes_.push_back(std::move(slot.envelope));
    free_.push_back(request);
  }
  std::shared_ptr<Envelope> take_envelope() {
    if (envelopes_.empty()) return std::make_shared<Envelope>();
    std::shared_ptr<Envelope> envelope = std::move(envelopes_.back());
    envelopes_.pop_back();
    return envelope;
  }
  void post_body(Slot& slot) {
    check_mpi(MPI_Irecv(slot.data, static_cast<int>(slot.bytes), MPI_BYTE, slot.peer, slot.tag,
                        communicator_, &slot.body),
              "MPI_Irecv");
  }
  /// Gives the request up if the message is of another collective. What takes data of the same
  /// peer is posted only here: Open MPI corrupts memory if a message is longer than its receive.
  void open_envelope(Request request) {
    Slot& slot = requests_[request];
    std::erase(unopened_, request);
    if (slot.envelope->signature != slot.expected) {
      const SignatureDiffers difference(slot.expected, slot.envelope->signature);
      cancel(request);
      throw difference;
    }
    if (slot.bytes > kEnclosedBytes) {
      post_body(slot);
    } else if (slot.bytes > 0) {
      std::memcpy(slot.data, slot.envelope->data, slot.bytes);
    }
    std::erase_if(deferred_, [&](Request later) {
      Slot& follower = requests_[later];
      if (follower.peer != slot.peer || follower.tag != slot.tag) return false;
      follower.deferred = false;
      post_body(follower);
      return true;
    });
  }
  static bool ended(MPI_Request& request) {
    int done = 0;
    check_mpi(MPI_Test(&request, &done, MPI_STATUS_IGNORE), "MPI_Test");
    return done != 0;
  }
  /// Any call would let MPI write to buffers whose collectives have failed, and whose users may
  /// have freed them.
  void check_free_to_move() const {
    if (leftovers_->holds_receives())
      throw FailedPrecondition(
          "MPI: receives of a collective that failed have not ended; the ranks have to recover or "
          "to end",
          "RECEIVES_LEFT");
  }

  MPI_Comm communicator_;
  int rank_ = 0;
  int size_ = 1;
  std::shared_ptr<MpiLeftovers> leftovers_;
  std::vector<Slot> requests_;
  std::vector<Request> free_;
  std::vector<std::shared_ptr<Envelope>> envelopes_;
  std::vector<Request> unopened_;  ///< receives whose signature has not come
  std::vector<Request> deferred_;  ///< receives that wait for one of those, in order
};

}  // namespace

std::unique_ptr<Transport> make_mpi_transport(MPI_Comm communicator,
                                              std::shared_ptr<MpiLeftovers> leftovers) {
  MPI_Comm duplicate = MPI_COMM_NULL;
  check_mpi(MPI_Comm_dup(communicator, &duplicate), "MPI_Comm_dup");
  return std::make_unique<MpiTransport>(duplicate, std::move(leftovers));
}

}  // namespace meshloom::comm
