// SPDX-License-Identifier: Apache-2.0
// Reading checkpoints: verified first, on any number of ranks.
#pragma once

#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "daemon/comm/process_group.h"
#include "daemon/train/files/checkpoint_check.h"
#include "daemon/train/files/manifest.h"
#include "daemon/train/files/safetensors.h"
#include "daemon/train/run/checkpoint_writer.h"

namespace meshloom::train {

/// CheckpointReader gives the tensors of a verified checkpoint, put together from however many
/// shards there are.
class CheckpointReader {
 public:
  CheckpointReader(const std::filesystem::path& folder, const Manifest& manifest,
                   base::Disk& disk = base::own_disk());

  const Manifest& manifest() const { return manifest_; }
  bool contains(const std::string& name) const { return tensors_.contains(name); }
  /// Returns the whole tensor's shape. Throws NotFound.
  const Shape& shape(const std::string& name) const;
  /// Copies the whole tensor into `out` (converts dtype). Throws FailedPrecondition naming both
  /// shapes if they differ, NotFound if there is none of that name, DataLoss if the shards
  /// do not add up.
  void read(const std::string& name, const Tensor& out) const;
  /// Copies a piece of the tensor, whose whole shape the reader of the checkpoint expects to be
  /// `whole`, and throws as read() of the whole one does. Only the files' bytes that are needed are
  /// touched.
  void read(const std::string& name, const Shape& whole, const Piece& piece, const Tensor& out,
            HostBlocks& blocks) const;

 private:
  struct Source {
    std::size_t file;
    const Piece* piece;
  };
  struct Stored {
    Shape shape;
    std::vector<Source> sources;
  };

  std::string label_;
  Manifest manifest_;
  std::map<std::string, Stored> tensors_;
  std::vector<std::shared_ptr<SafetensorsFile>> files_;
};

/// FoundCheckpoint is a checkpoint chosen to go on from.
struct FoundCheckpoint {
  std::filesystem::path folder;
  Manifest manifest;
  std::vector<std::string> notes;
};

/// Returns the checkpoint in `folder`, its tensors verified (each rank of `world` that reads its
/// own host's disk a share of the files). Throws DataLoss on every rank alike. Rank 0's notes name
/// other files that have changed.
FoundCheckpoint open_checkpoint(comm::ProcessGroup& world, const std::filesystem::path& folder,
                                base::Disk& disk = base::own_disk());

/// Opens the checkpoint as open_checkpoint does; if it is damaged, the newest sound one of those
/// beside it that are older, with a note. If all are damaged its own error is thrown.
FoundCheckpoint open_checkpoint_or_older(comm::ProcessGroup& world,
                                         const std::filesystem::path& folder,
                                         base::Disk& disk = base::own_disk());

/// Returns the newest checkpoint, verified (each rank of `world` a share of the files); nullopt if
/// there is none. A damaged one throws DataLoss naming it, on every rank; with `allow_fallback` it
/// is renamed to damaged-step-N, noted, and the one before is taken. If all are damaged the
/// newest's error is thrown.
std::optional<FoundCheckpoint> find_checkpoint(comm::ProcessGroup& world,
                                               const CheckpointLocation& location,
                                               bool allow_fallback);

}  // namespace meshloom::train
