// SPDX-License-Identifier: Apache-2.0
// Rank 0's files for ranks whose host has another disk.
#pragma once

#include <string>

#include "daemon/control/ranks/file_grants.h"
#include "v1/rank_file_service.grpc.pb.h"

namespace meshloom::control {

/// Served by gRPC's threads alone, so rank 0's training thread may wait in a collective meanwhile.
class RankFileServiceImpl final : public v1::RankFileService::Service {
 public:
  /// `grants` outlives this.
  RankFileServiceImpl(const FileGrants& grants, std::string secret)
      : grants_(grants), secret_(std::move(secret)) {}

  grpc::Status LookAt(grpc::ServerContext* context, const v1::FileRequest* request,
                      v1::FileLook* response) override;
  grpc::Status Open(grpc::ServerContext* context, const v1::FileRequest* request,
                    v1::OpenedFile* response) override;
  grpc::Status List(grpc::ServerContext* context, const v1::ListFilesRequest* request,
                    v1::FileList* response) override;
  grpc::Status Read(grpc::ServerContext* context, const v1::ReadFileRequest* request,
                    grpc::ServerWriter<v1::FilePiece>* pieces) override;
  grpc::Status Write(grpc::ServerContext* context,
                     grpc::ServerReader<v1::WriteFileRequest>* requests,
                     v1::WrittenFile* response) override;

 private:
  /// What `serve` throws becomes the error of `response`.
  template <typename Response, typename Serve>
  grpc::Status answer(const grpc::ServerContext& context, Response* response, const Serve& serve);
  void send(const v1::ReadFileRequest& request, grpc::ServerWriter<v1::FilePiece>& pieces);
  /// Returns the bytes of the file.
  std::uint64_t receive(grpc::ServerReader<v1::WriteFileRequest>& requests);

  const FileGrants& grants_;
  const std::string secret_;
};

}  // namespace meshloom::control
