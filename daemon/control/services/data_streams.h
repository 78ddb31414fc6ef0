// SPDX-License-Identifier: Apache-2.0
// InspectData and TokenizeData: how far a call is, then what it found or made.
#pragma once

#include <atomic>
#include <chrono>
#include <type_traits>
#include <utility>

#include "daemon/control/host/background_thread.h"
#include "daemon/control/jobs/model_folders.h"
#include "daemon/control/jobs/tokenization.h"
#include "daemon/control/services/data_output.h"
#include "daemon/control/services/data_reading.h"
#include "daemon/control/services/stream.h"
#include "v1/data_service.pb.h"

namespace meshloom::control {

/// What they share. Outlives them.
struct DataWorld {
  ModelFolders& folders;
  Tokenization& tokenization;
  std::filesystem::path data_dir;
  DataOutputs& outputs;
  int threads = 1;                    ///< of rank 0's host, which give way to training
  const std::atomic<bool>& stopping;  ///< what is under way is given up
};

/// Tells how far it is, then its result, as long as anybody wants to know.
template <typename Response>
class DataStream : public Stream<Response> {
 protected:
  using Result = std::remove_cvref_t<decltype(std::declval<const Response&>().result())>;

  DataStream(StreamHost& host, const Caller& caller, const char* method, const DataWorld& world)
      : Stream<Response>(host, caller, method), world_(world) {}

  void part_done(const std::string& path, std::uint64_t bytes, std::uint64_t total) {
    check_wanted();
    if (std::chrono::steady_clock::now() < told_ + std::chrono::milliseconds(500)) return;
    told_ = std::chrono::steady_clock::now();
    Response response;
    v1::TokenizeProgress& progress = *response.mutable_progress();
    progress.set_field(path);
    progress.set_bytes(static_cast<std::int64_t>(bytes));
    progress.set_total_bytes(static_cast<std::int64_t>(total));
    this->write(std::move(response));
  }
  void check_wanted() const {
    if (world_.stopping) throw Unavailable("the daemon is stopping", "STOPPING");
    if (this->ended()) throw Cancelled("the client has gone");
  }

  virtual Result make_result() = 0;

  const DataWorld& world_;

 private:
  bool produce() final {
    give_way_to_training();
    check_wanted();
    Response last;
    *last.mutable_result() = make_result();
    this->write(std::move(last));
    this->finish();
    return false;
  }

  std::chrono::steady_clock::time_point told_ = std::chrono::steady_clock::now();
};

class InspectDataStream final : public DataStream<v1::InspectDataResponse> {
 public:
  InspectDataStream(StreamHost& host, const Caller& caller, const DataWorld& world,
                    const v1::InspectDataRequest& request)
      : DataStream(host, caller, "InspectData", world), request_(request) {}

 private:
  Result make_result() override;

  const v1::InspectDataRequest request_;
};

class TokenizeDataStream final : public DataStream<v1::TokenizeDataResponse> {
 public:
  TokenizeDataStream(StreamHost& host, const Caller& caller, const DataWorld& world,
                     const v1::TokenizeDataRequest& request)
      : DataStream(host, caller, "TokenizeData", world), request_(request) {}

 private:
  Result make_result() override;
  v1::TokenFileSummary write_tokens(DataReading& reading);

  const v1::TokenizeDataRequest request_;
};

}  // namespace meshloom::control
