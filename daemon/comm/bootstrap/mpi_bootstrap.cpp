// SPDX-License-Identifier: Apache-2.0
#include "daemon/comm/bootstrap/mpi_bootstrap.h"

#include "daemon/comm/backoff.h"
#include "daemon/comm/mpi_check.h"
#include "kernels/base/error.h"

namespace meshloom::comm {
namespace {

class MpiBootstrap : public Bootstrap {
 public:
  MpiBootstrap(MPI_Comm communicator, std::chrono::milliseconds timeout) : timeout_(timeout) {
    check_mpi(MPI_Comm_dup(communicator, &communicator_), "MPI_Comm_dup");
    check_mpi(MPI_Comm_set_errhandler(communicator_, MPI_ERRORS_RETURN), "MPI_Comm_set_errhandler");
    check_mpi(MPI_Comm_rank(communicator_, &rank_), "MPI_Comm_rank");
    check_mpi(MPI_Comm_size(communicator_, &size_), "MPI_Comm_size");
  }

  int rank() const override { return rank_; }
  int world_size() const override { return size_; }

  std::vector<std::string> exchange(const std::string& mine) override {
    const auto ranks = static_cast<std::size_t>(size_);
    const int own = static_cast<int>(mine.size());
    std::vector<int> sizes(ranks), offsets(ranks);
    MPI_Request request;
    check_mpi(MPI_Iallgather(&own, 1, MPI_INT, sizes.data(), 1, MPI_INT, communicator_, &request),
              "MPI_Iallgather");
    wait(request, "exchange of sizes");
    int total = 0;
    for (std::size_t r = 0; r < ranks; ++r) {
      offsets[r] = total;
      total += sizes[r];
    }
    std::string all(static_cast<std::size_t>(total), '\0');
    check_mpi(MPI_Iallgatherv(mine.data(), own, MPI_BYTE, all.data(), sizes.data(), offsets.data(),
                              MPI_BYTE, communicator_, &request),
              "MPI_Iallgatherv");
    wait(request, "exchange");
    std::vector<std::string> result;
    for (std::size_t r = 0; r < ranks; ++r)
      result.push_back(
          all.substr(static_cast<std::size_t>(offsets[r]), static_cast<std::size_t>(sizes[r])));
    return result;
  }

  std::string broadcast(const std::string& value, int root) override {
    int bytes = static_cast<int>(value.size());
    MPI_Request request;
    check_mpi(MPI_Ibcast(&bytes, 1, MPI_INT, root, communicator_, &request), "MPI_Ibcast");
    wait(request, "broadcast of a size");
    std::string result = rank_ == root ? value : std::string(static_cast<std::size_t>(bytes), '\0');
    check_mpi(MPI_Ibcast(result.data(), bytes, MPI_BYTE, root, communicator_, &request),
              "MPI_Ibcast");
    wait(request, "broadcast");
    return result;
  }

  void barrier() override {
    MPI_Request request;
    check_mpi(MPI_Ibarrier(communicator_, &request), "MPI_Ibarrier");
    wait(request, "barrier");
  }

 private:
  void wait(MPI_Request& request, const char* what) {
    const auto deadline = std::chrono::steady_clock::now() + timeout_;
    Backoff backoff;
    int done = 0;
    while (true) {
      check_mpi(MPI_Test(&request, &done, MPI_STATUS_IGNORE), "MPI_Test");
      if (done != 0) return;
      if (std::chrono::steady_clock::now() > deadline)
        throw DeadlineExceeded(
            fmt::format("bootstrap: {} on rank {} of {}: other ranks did not come within {} ms",
                        what, rank_, size_, timeout_.count()),
            "BOOTSTRAP_TIMEOUT");
      backoff.pause();
    }
  }

  std::chrono::milliseconds timeout_;
  MPI_Comm communicator_ = MPI_COMM_NULL;
  int rank_ = 0;
  int size_ = 1;
};

}  // namespace

std::unique_ptr<Bootstrap> make_mpi_bootstrap(MPI_Comm communicator,
                                              std::chrono::milliseconds timeout) {
  return std::make_unique<MpiBootstrap>(communicator, timeout);
}

}  // namespace meshloom::comm
