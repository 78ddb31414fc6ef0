// SPDX-License-Identifier: Apache-2.0
// Hugging Face model folders: config.json beside safetensors files, read and written.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "daemon/nn/models/model.h"
#include "daemon/train/files/carried_files.h"
#include "daemon/train/files/hf_names.h"
#include "daemon/train/files/piece.h"
#include "daemon/train/files/same_values.h"

namespace meshloom::train {

/// The choice says what becomes of the output head where a folder is without one (nn::is_headless).
enum class MissingHead { kRefused, kFresh };

/// HfFolder is a folder that transformers' save_pretrained wrote, or Meshloom's save_hf_folder:
/// config.json and model.safetensors, or several files with model.safetensors.index.json, which
/// then says which of them holds a tensor. Weights are read when they are asked for.
class HfFolder {
 public:
  /// Throws NotFound naming the folder or the missing file, InvalidArgument or Unimplemented for a
  /// config, index or safetensors file that cannot be used.
  static HfFolder open(const std::filesystem::path& folder, base::Disk& disk = base::own_disk());

  /// Returns the last part of the path, for messages.
  const std::string& label() const { return label_; }
  /// Returns the config of config.json, which may tie what the weights do not (see model_config).
  const nn::ModelConfig& config() const { return config_; }

  /// Tells whether the output head is another one than the embedding, though config.json ties them:
  /// both are in the files, with different values. As transformers does since its version 5, both
  /// are kept then. Reads both, piece by piece, up to the first difference (same_values).
  bool has_own_head() const;
  /// Returns the model that the weights are of: config(), not tied where has_own_head().
  nn::ModelConfig model_config() const;
  /// Returns what to say of has_own_head(), and of an output bias that counts while another one is
  /// there.
  std::vector<std::string> tie_notes() const;

  /// Throws InvalidArgument unless the folder has exactly these parameters, but for a head that is
  /// to be made anew, in these shapes, in float32, bfloat16, float16 or float64. Names those that
  /// are missing and those that are unexpected (the first few), and the wrapper around the model
  /// that made the names so. Reads headers alone.
  void check_parameters(const std::vector<nn::NamedParameter>& parameters,
                        MissingHead head = MissingHead::kRefused) const;
  bool has(const std::string& parameter) const { return find(parameter) != nullptr; }
  /// Copies a parameter into `dst`, converting its dtype. The shapes must be equal.
  void read(const std::string& parameter, const Tensor& dst) const;
  /// Copies a piece of a parameter, whose whole shape is `whole`, into `dst`, converting its dtype.
  void read(const std::string& parameter, const Shape& whole, const Piece& piece, const Tensor& dst,
            HostBlocks& blocks) const;

 private:
  /// Adds the tensors of a file. `wanted`: whether a tensor of the file is the folder's.
  void add_file(const std::shared_ptr<SafetensorsFile>& file,
                const std::function<bool(const std::string& tensor)>& wanted);
  void read_index(const std::filesystem::path& folder, const std::string& text, base::Disk& disk);
  /// Returns the tensor that counts of those that may hold a parameter; null if there is none.
  const StoredTensor* find(const std::string& parameter) const;
  /// Tells whether both names are there, with different values.
  bool differ(const nn::HfTiedNames& names) const;
  void check_tensor(const std::string& name, const Shape& shape) const;

  std::string label_;
  nn::ModelConfig config_;
  bool headless_ = false;
  std::map<std::string, StoredTensor> tensors_;  ///< by hf_parameter_name
};

/// Tells whether there are weights beside its config.json, whole or not.
bool has_hf_weights(const std::filesystem::path& folder, base::Disk& disk = base::own_disk());

/// Reads what the headers of a folder's files say, for one that is to be kept or trained on: opens
/// it and checks names, shapes and dtypes of its tensors against its config. Its head may be
/// missing. Reads no weights and allocates none. Throws as HfFolder::open and check_parameters.
HfFolder check_hf_folder(const std::filesystem::path& folder);

/// Runs check_parameters, then loads every parameter of the module.
void load_hf_weights(const HfFolder& folder, nn::Module& module);

struct NamedTensor {
  std::string name;  ///< of the parameter: transformers' name
  Tensor value;
};

struct HfSaveOptions {
  DType dtype = DType::kFloat32;  ///< float32, bfloat16 or float16
  std::uint64_t max_file_bytes =
      5'000'000'000;            ///< tensors of one file, unless one tensor alone has more
  bool byte_tokenizer = false;  ///< adds a tokenizer whose ids are bytes (vocab 256)
  /// Files that go along (text::carried_files). A tokenizer among them counts before
  /// byte_tokenizer.
  std::vector<CarriedFile> carried = {};
};

/// HfParameter is a parameter that is made (and freed) when it is written.
struct HfParameter {
  std::string name;
  Shape shape;
  std::function<Tensor()> value;  ///< called once
};

/// The reason of an export whose dtype does not reach a value.
inline constexpr const char* kValueOverflows = "VALUE_OVERFLOWS";

/// Writes config.json, generation_config.json, the weights and the digests of all these
/// (export_digests.h), so that transformers loads the folder without a warning. Written under
/// another name and put in place at the end: `folder` is complete, or as it was before; an older
/// one is replaced. Throws FailedPrecondition (kValueOverflows) naming parameter and value if a
/// finite one would become infinite in options.dtype, ResourceExhausted if the disk is full,
/// IoError.
void save_hf_folder(const std::filesystem::path& folder, const nn::ModelConfig& config,
                    const std::vector<NamedTensor>& tensors, const HfSaveOptions& options = {});
/// Writes a folder as save_hf_folder of tensors does, one parameter after the other.
void save_hf_folder(const std::filesystem::path& folder, const nn::ModelConfig& config,
                    const std::vector<HfParameter>& parameters, const HfSaveOptions& options = {});
/// Writes a folder as save_hf_folder of tensors does, of a model's own parameters.
void save_hf_folder(const std::filesystem::path& folder, nn::Model& model,
                    const HfSaveOptions& options = {});

}  // namespace meshloom::train
