// SPDX-License-Identifier: Apache-2.0
// The manifest of a checkpoint folder: what it holds, of which run, and the digest of every file.
//
//   step-200/
//     shard-00000-of-00002.safetensors   one per rank that wrote it
//     shard-00001-of-00002.safetensors
//     tokenizer.json, ...                what the model came with, if it did
//     manifest.json                      written last: a folder without it is no checkpoint
//
// manifest.json is {"manifest": {...}, "xxh3_128": digest of the inner object's compact text}. A
// shard holds pieces of tensors under their names; the manifest says which: for every dim the
// ranges of global indices. All pieces of a tensor cover it once. (In version 1 a shard held of
// every tensor the rows of the first dim that the ceil rule gives to its rank.)
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "daemon/base/disk.h"
#include "daemon/train/files/file_system.h"
#include "daemon/train/files/piece.h"
#include "kernels/base/shape.h"

namespace meshloom::train {

inline constexpr int kManifestVersion = 2;
inline constexpr const char* kManifestName = "manifest.json";
/// The reason of read_manifest's NotFound.
inline constexpr const char* kCheckpointNotFound = "CHECKPOINT_NOT_FOUND";

/// ManifestPiece is a piece of a tensor that a file holds.
struct ManifestPiece {
  std::size_t tensor = 0;  ///< index into Manifest::tensors
  Piece piece;
};

struct ManifestFile {
  std::string name;
  std::uint64_t bytes = 0;
  std::string xxh3_128;  ///< 32 hex digits
  std::vector<ManifestPiece> pieces = {};
};

struct ManifestTensor {
  std::string name;
  Shape shape;  ///< of the whole tensor; all are float32
};

/// Decides which bits a computation gives, beside the config (DESIGN D5).
struct ComputeClass {
  std::string cpu_class;     ///< of what was computed on, a CPU or another device
  std::string matmul_table;  ///< version of the provider table
  int threads = 1;           ///< per rank
  int world_size = 1;
  std::string mesh = {};  ///< "dp=2,fsdp=2,cp=1,tp=1"; empty: data parallel over the world
  /// comm::ProcessGroup::hosts() of the world; empty: sums are in rank order
  std::string hosts = {};

  bool operator==(const ComputeClass&) const = default;
};

struct Manifest {
  std::int64_t step = 0;           ///< optimizer steps done
  std::int64_t data_position = 0;  ///< samples drawn so far
  std::int64_t tokens = 0;         ///< labels trained on so far
  std::uint64_t seed = 0;
  ComputeClass compute;
  std::string model_config;              ///< config.json text as Hugging Face writes it
  std::string run_config;                ///< resolved RunConfig as JSON
  std::string data_identity = {};        ///< DataIdentity as JSON; empty in older checkpoints
  std::string validation_progress = {};  ///< v1::ValidationProgress as JSON; empty: nothing yet
  /// The job's validations count every token; false in older checkpoints, whose validations left
  /// out the tokens at the end of packed data that fill no sample.
  bool validates_all = true;
  std::map<std::string, std::string> user_metadata = {};  ///< of a client, kept as it is
  std::vector<ManifestTensor> tensors;
  std::vector<ManifestFile> files;
  /// These files go along with the model and hold no tensors, such as its tokenizer.
  std::vector<ManifestFile> other_files = {};
};

std::string manifest_to_json(const Manifest&);
/// Throws DataLoss (naming `label`) for text that is damaged, FailedPrecondition for a newer format
/// version.
Manifest manifest_from_json(const std::string& text, const std::string& label);

/// Tells whether a folder is a checkpoint: the manifest is written last, so one without it never
/// was.
bool is_checkpoint(const std::filesystem::path& folder, base::Disk& disk = base::own_disk());

/// Reads and checks folder/manifest.json. Throws NotFound if the folder is no checkpoint,
/// DataLoss naming it if it is damaged.
Manifest read_manifest(const std::filesystem::path& folder, base::Disk& disk = base::own_disk());

/// Reads Manifest::validation_progress of a checkpoint alone, without a look at the rest if there
/// is none. Throws as read_manifest.
std::string read_validation_progress(const std::filesystem::path& folder);

/// Returns "step-200": the folder of the checkpoint after so many optimizer steps.
std::string checkpoint_folder_name(std::int64_t step);
/// Returns 200 for "step-200"; nullopt for names of anything else.
std::optional<std::int64_t> step_of_folder_name(const std::string& name);

/// CheckpointEntry is a checkpoint of a folder of checkpoints.
struct CheckpointEntry {
  std::int64_t step = 0;
  std::filesystem::path folder;
};
/// Returns all checkpoints step-N below `directory`, ascending by N, damaged or not. Empty if there
/// is no such directory.
std::vector<CheckpointEntry> list_checkpoints(const std::filesystem::path& directory,
                                              base::Disk& disk = base::own_disk());

}  // namespace meshloom::train
