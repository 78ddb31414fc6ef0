// SPDX-License-Identifier: Apache-2.0
// ImportUpload: how far the copy of an upload is, then what was written.
#pragma once

#include <string>

#include "daemon/control/services/data_streams.h"
#include "daemon/control/stores/upload_store.h"

namespace meshloom::control {

class ImportStream final : public DataStream<v1::ImportUploadResponse> {
 public:
  /// `uploads` outlives the calls of the server.
  ImportStream(StreamHost& host, grpc::CallbackServerContext& context, const DataWorld& world,
               UploadStore& uploads, const v1::ImportUploadRequest& request);

 private:
  bool produce() override;
  v1::ImportedFile import_upload();
  void copy(const UploadStore::OpenContent& content, const std::filesystem::path& path);

  UploadStore& uploads_;
  const v1::ImportUploadRequest request_;
  std::string client_;
  grpc::Status client_known_;
};

}  // namespace meshloom::control
