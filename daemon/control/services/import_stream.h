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
  ImportStream(StreamHost& host, const Caller& caller, const DataWorld& world, UploadStore& uploads,
               const v1::ImportUploadRequest& request);

 private:
  Result make_result() override;
  DataOutputs::Asked asked() const {
    return {"path", request_.path(), request_.overwrite(), true,
            own_data_folder(caller().identity())};
  }
  /// Returns where the file is; of a repeat, where the first call has made it.
  std::filesystem::path import_once(const UploadStore::OpenContent& content, const RequestKey& key);
  void copy(const UploadStore::OpenContent& content, const std::filesystem::path& path);

  UploadStore& uploads_;
  const v1::ImportUploadRequest request_;
};

}  // namespace meshloom::control
