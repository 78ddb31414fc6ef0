// SPDX-License-Identifier: Apache-2.0
#include "daemon/comm/mpi_transport.h"

#include <algorithm>
#include <vector>

#include "kernels/base/error.h"

namespace meshloom::comm {
namespace {

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

  Request send(const std::byte* data, std::size_t bytes, int peer, int tag) override {
    const Request slot = new_slot(false);
    check_mpi(MPI_Isend(data, static_cast<int>(bytes), MPI_BYTE, peer, tag, communicator_,
                        &requests_[slot].handle),
              "MPI_Isend");
    return slot;
  }
  Request recv(std::byte* data, std::size_t bytes, int peer, int tag) override {
    const Request slot = new_slot(true);
    check_mpi(MPI_Irecv(data, static_cast<int>(bytes), MPI_BYTE, peer, tag, communicator_,
                        &requests_[slot].handle),
              "MPI_Irecv");
    return slot;
  }
  // MPI_Test moves everything by itself.
  void progress() override {}

  bool test(Request request) override {
    int done = 0;
    check_mpi(MPI_Test(&requests_[request].handle, &done, MPI_STATUS_IGNORE), "MPI_Test");
    if (done != 0) free_.push_back(request);
    return done != 0;
  }

  void cancel(Request request) override {
    Slot& slot = requests_[request];
    leftovers_->give_up(slot.handle, slot.receive);
    slot.handle = MPI_REQUEST_NULL;
    free_.push_back(request);
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
  struct Slot {
    MPI_Request handle = MPI_REQUEST_NULL;
    bool receive = false;
  };

  Request new_slot(bool receive) {
    if (free_.empty()) {
      requests_.push_back({MPI_REQUEST_NULL, receive});
      return static_cast<Request>(requests_.size() - 1);
    }
    const Request slot = free_.back();
    free_.pop_back();
    requests_[slot].receive = receive;
    return slot;
  }

  MPI_Comm communicator_;
  int rank_ = 0;
  int size_ = 1;
  std::shared_ptr<MpiLeftovers> leftovers_;
  std::vector<Slot> requests_;
  std::vector<Request> free_;
};

}  // namespace

void check_mpi(int code, const char* call) {
  if (code == MPI_SUCCESS) return;
  char text[MPI_MAX_ERROR_STRING];
  int length = 0;
  MPI_Error_string(code, text, &length);
  throw CommError(
      fmt::format("{} failed: {}", call, std::string(text, static_cast<std::size_t>(length))),
      "MPI_ERROR", {{"call", call}, {"code", std::to_string(code)}});
}

std::unique_ptr<Transport> make_mpi_transport(MPI_Comm communicator,
                                              std::shared_ptr<MpiLeftovers> leftovers) {
  MPI_Comm duplicate = MPI_COMM_NULL;
  check_mpi(MPI_Comm_dup(communicator, &duplicate), "MPI_Comm_dup");
  return std::make_unique<MpiTransport>(duplicate, std::move(leftovers));
}

}  // namespace meshloom::comm
