// SPDX-License-Identifier: Apache-2.0
// Reading and writing safetensors files (https://github.com/huggingface/safetensors).
#pragma once

#include <filesystem>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "daemon/train/checkpoint/safetensors_header.h"
#include "kernels/base/tensor_view.h"

namespace meshloom::train {

/// A file that has passed every check of parse_safetensors_header, mapped read-only. Nothing but
/// the header is read by open(). Errors name the file by its folder and name
/// ("gpt2_hf/model.safetensors").
class SafetensorsFile {
 public:
  /// Throws NotFound where there is no such file, InvalidArgument (MALFORMED_SAFETENSORS) for what
  /// is no safetensors file, IoError where the system refuses.
  static std::shared_ptr<SafetensorsFile> open(const std::filesystem::path& path);
  ~SafetensorsFile();
  SafetensorsFile(const SafetensorsFile&) = delete;
  SafetensorsFile& operator=(const SafetensorsFile&) = delete;

  /// "folder/name", for messages.
  const std::string& label() const { return label_; }
  /// In order of their data.
  const std::vector<SafetensorsEntry>& entries() const { return header_.entries; }
  const SafetensorsMetadata& metadata() const { return header_.metadata; }
  /// Null where there is no tensor of that name.
  const SafetensorsEntry* find(std::string_view name) const;
  bool contains(std::string_view name) const { return find(name) != nullptr; }

  /// A window on the mapping, valid as long as this object, never to be written to. Data that the
  /// file does not align to their element size come from a copy. Throws NotFound naming file and
  /// tensor.
  TensorView view(std::string_view name) const;
  TensorView view(const SafetensorsEntry& entry) const;

 private:
  SafetensorsFile() = default;

  std::string label_;
  SafetensorsHeader header_;
  std::vector<std::size_t> by_name_;  ///< indices into entries, sorted by name
  const std::byte* mapping_ = nullptr;
  std::size_t mapping_bytes_ = 0;
  const std::byte* data_ = nullptr;
  mutable std::vector<std::unique_ptr<std::byte[]>> aligned_copies_;
};

/// Writes one file, tensor by tensor, so that nothing needs to be held whole. The file is neither
/// synced nor renamed before close(); one that was not closed is not complete.
class SafetensorsWriter {
 public:
  using Observer = std::function<void(std::span<const std::byte>)>;

  /// Creates or truncates `path` and writes the header. `entries` need name, dtype and shape.
  /// `observer` sees every byte in order (for digests). Throws IoError, or ResourceExhausted where
  /// the disk is full.
  SafetensorsWriter(const std::filesystem::path& path, std::vector<SafetensorsEntry> entries,
                    const SafetensorsMetadata& metadata, Observer observer = {});
  ~SafetensorsWriter();
  SafetensorsWriter(const SafetensorsWriter&) = delete;
  SafetensorsWriter& operator=(const SafetensorsWriter&) = delete;

  /// In the order in which write() expects them, offsets set.
  const std::vector<SafetensorsEntry>& entries() const { return entries_; }
  /// The data of the next entry: contiguous, of its dtype and shape.
  void write(const TensorView& tensor);
  /// After the last write(): fsync and close.
  void close();

 private:
  void write_bytes(std::span<const std::byte> bytes);

  std::string label_;
  std::vector<SafetensorsEntry> entries_;
  Observer observer_;
  std::size_t next_ = 0;
  int fd_ = -1;
};

struct NamedView {
  std::string name;
  TensorView view;  ///< contiguous
};

/// A whole file at once, closed. `metadata` usually holds {"format", "pt"}: transformers asks for
/// it.
void write_safetensors(const std::filesystem::path& path, const std::vector<NamedView>& tensors,
                       const SafetensorsMetadata& metadata = {{"format", "pt"}});

}  // namespace meshloom::train
