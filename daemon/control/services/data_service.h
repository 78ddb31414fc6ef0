// SPDX-License-Identifier: Apache-2.0
// DataService: text and tokens below the daemon's data folders.
#pragma once

#include "daemon/control/services/data_streams.h"
#include "daemon/control/services/stream_host.h"
#include "v1/data_service.grpc.pb.h"

namespace meshloom::control {

class DataServiceImpl final
    : public v1::DataService::WithCallbackMethod_InspectData<
          v1::DataService::WithCallbackMethod_TokenizeData<v1::DataService::Service>> {
 public:
  DataServiceImpl(Admission& admission, const std::filesystem::path& data_dir,
                  const std::filesystem::path& state_dir, int threads)
      : world_{admission, data_dir, state_dir, threads, stopping_} {}

  grpc::ServerWriteReactor<v1::InspectDataResponse>* InspectData(
      grpc::CallbackServerContext* context, const v1::InspectDataRequest* request) override;
  grpc::ServerWriteReactor<v1::TokenizeDataResponse>* TokenizeData(
      grpc::CallbackServerContext* context, const v1::TokenizeDataRequest* request) override;
  /// Calls that are under way end soon. Does not wait.
  void request_stop() { stopping_ = true; }
  /// After the server's shutdown.
  void stop();

 private:
  std::atomic<bool> stopping_ = false;
  const DataWorld world_;
  /// One file is written at a time, so that none is written by two.
  StreamHost tokenizations_{{"tokenizations of data", 4, 1}};
  StreamHost inspections_{{"inspections of data", 8, 2}};
};

}  // namespace meshloom::control
