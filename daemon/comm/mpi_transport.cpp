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
  explicit MpiTransport(MPI_Comm communicator) : communicator_(communicator) {
    check_mpi(MPI_Comm_set_errhandler(communicator_, MPI_ERRORS_RETURN), "MPI_Comm_set_errhandler");
    check_mpi(MPI_Comm_rank(communicator_, &rank_), "MPI_Comm_rank");
    check_mpi(MPI_Comm_size(communicator_, &size_), "MPI_Comm_size");
  }
  // The communicator is left to MPI_Finalize: freeing it waits for the other ranks.
  ~MpiTransport() override = default;

  int rank() const override { return rank_; }
  int size() const override { return size_; }

  Request send(const std::byte* data, std::size_t bytes, int peer, int tag) override {
    const Request slot = new_slot();
    check_mpi(MPI_Isend(data, static_cast<int>(bytes), MPI_BYTE, peer, tag, communicator_,
                        &requests_[slot]),
              "MPI_Isend");
    return slot;
  }
  Request recv(std::byte* data, std::size_t bytes, int peer, int tag) override {
    const Request slot = new_slot();
    check_mpi(MPI_Irecv(data, static_cast<int>(bytes), MPI_BYTE, peer, tag, communicator_,
                        &requests_[slot]),
              "MPI_Irecv");
    return slot;
  }
  // MPI_Test moves everything by itself.
  void progress() override {}

  bool test(Request request) override {
    int done = 0;
    check_mpi(MPI_Test(&requests_[request], &done, MPI_STATUS_IGNORE), "MPI_Test");
    if (done != 0) free_.push_back(request);
    return done != 0;
  }

  void cancel(Request request) override {
    MPI_Request& handle = requests_[request];
    if (handle == MPI_REQUEST_NULL) return;
    // Neither call waits. A request that was matched already stays with MPI until the process ends.
    MPI_Cancel(&handle);
    MPI_Request_free(&handle);
    handle = MPI_REQUEST_NULL;
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
    return std::make_unique<MpiTransport>(part);
  }

 private:
  Request new_slot() {
    if (free_.empty()) {
      requests_.push_back(MPI_REQUEST_NULL);
      return static_cast<Request>(requests_.size() - 1);
    }
    const Request slot = free_.back();
    free_.pop_back();
    return slot;
  }

  MPI_Comm communicator_;
  int rank_ = 0;
  int size_ = 1;
  std::vector<MPI_Request> requests_;
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

std::unique_ptr<Transport> make_mpi_transport(MPI_Comm communicator) {
  MPI_Comm duplicate = MPI_COMM_NULL;
  check_mpi(MPI_Comm_dup(communicator, &duplicate), "MPI_Comm_dup");
  return std::make_unique<MpiTransport>(duplicate);
}

}  // namespace meshloom::comm
