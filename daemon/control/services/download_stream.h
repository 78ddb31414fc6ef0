// SPDX-License-Identifier: Apache-2.0
// The files of a folder, in pieces, each with its digests at its end. Those of a checkpoint are
// compared with its manifest on the way, those of an export with the digests that it has.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "daemon/base/sha256.h"
#include "daemon/control/host/hold.h"
#include "daemon/control/services/stream.h"
#include "daemon/control/stores/checkpoint_files.h"
#include "daemon/train/files/digest.h"
#include "daemon/train/files/manifest.h"

namespace meshloom::control {

class DownloadStream final : public Stream<v1::ReadCheckpointResponse> {
 public:
  struct Source {
    std::filesystem::path folder;
    Hold hold;  ///< while it is read
  };
  /// Finds what the request names, by its first piece. May throw and block.
  using Find = std::function<Source(const Caller& caller, const std::string& name)>;

  DownloadStream(StreamHost& host, grpc::CallbackServerContext& context, Find find,
                 const v1::ReadCheckpointRequest& request)
      : Stream(host, context, "ReadCheckpoint"), find_(std::move(find)), request_(request) {}

 private:
  /// Throws DataLoss (CHECKPOINT_DAMAGED) where a file that was read to its end has another digest.
  bool produce() override;
  void let_go() override {
    files_.clear();
    source_.hold.release();
  }
  void open_all();
  /// Throws DataLoss (CHECKPOINT_DAMAGED) for a file that is missing or of another size.
  void expect(const train::ManifestFile& file);
  std::string read_piece(std::int64_t offset, std::int64_t end);

  const Find find_;
  const v1::ReadCheckpointRequest request_;
  bool opened_ = false;
  Source source_;
  std::vector<OpenFile> files_;
  bool has_digests_ = false;
  std::map<std::string, std::string> expected_;  ///< digest by file, where there are some
  std::size_t file_ = 0;                         ///< the one that is read
  std::int64_t offset_ = 0;                      ///< of the next piece
  std::int64_t digested_ = 0;                    ///< bytes of the file that are in the digests
  train::Digest xxh3_;
  base::Sha256 sha256_;
};

}  // namespace meshloom::control
