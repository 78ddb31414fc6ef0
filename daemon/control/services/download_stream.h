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

/// Finds the files of a checkpoint, an export or weights of a run.
class DownloadSources {
 public:
  struct Source {
    std::filesystem::path folder;
    Hold hold;  ///< while it is read
  };
  virtual ~DownloadSources() = default;
  /// Finds what a request names, by its first piece. It may throw and block. Any thread may call
  /// it.
  virtual Source find(const Caller& caller, const std::string& name) const = 0;
};

class DownloadStream final : public Stream<v1::ReadCheckpointResponse> {
 public:
  /// `sources` outlives the calls of the server.
  DownloadStream(StreamHost& host, const Caller& caller, const DownloadSources& sources,
                 const v1::ReadCheckpointRequest& request)
      : Stream(host, caller, "ReadCheckpoint"), sources_(sources), request_(request) {}

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

  const DownloadSources& sources_;
  const v1::ReadCheckpointRequest request_;
  bool opened_ = false;
  DownloadSources::Source source_;
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
