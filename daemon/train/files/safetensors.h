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

#include "daemon/base/disk.h"
#include "daemon/train/files/safetensors_header.h"
#include "kernels/base/tensor_view.h"

namespace meshloom::train {

/// SafetensorsFile is a file that has passed every check of parse_safetensors_header, open and not
/// mapped. Nothing but the header is read by open(). What is wrong with its format names the file
/// by its folder and name ("gpt2_hf/model.safetensors").
class SafetensorsFile {
 public:
  /// Throws as base::InputFile, and InvalidArgument for what is no safetensors file
  /// (MALFORMED_SAFETENSORS, or as base::refuse_stand_in). `label`, if not empty, is what messages
  /// call it.
  static std::shared_ptr<SafetensorsFile> open(const std::filesystem::path& path,
                                               const std::string& label = {},
                                               base::Disk& disk = base::own_disk());

  const base::InputFile& input() const { return file_; }
  /// Returns "folder/name", for messages.
  const std::string& label() const { return label_; }
  /// Returns the entries in the order of their data.
  const std::vector<SafetensorsEntry>& entries() const { return header_.entries; }
  const SafetensorsMetadata& metadata() const { return header_.metadata; }
  /// Returns null if there is no tensor of that name.
  const SafetensorsEntry* find(std::string_view name) const;
  bool contains(std::string_view name) const { return find(name) != nullptr; }

  /// Fills `out` with a tensor's bytes from `offset`, counted inside the tensor. Throws IoError.
  void read(const SafetensorsEntry& entry, std::uint64_t offset, std::span<std::byte> out) const;
  /// Fills `out`, as read() does, with the bytes of stripes, whose offset is counted inside the
  /// tensor too.
  void read_stripes(const SafetensorsEntry& entry, base::Stripes stripes,
                    std::span<std::byte> out) const;
  /// Tells whether another host has the file.
  bool is_remote() const { return file_.is_remote(); }
  /// Returns a whole tensor, read into memory that this object keeps; never to be written to. For
  /// small files: read() for those of models. Throws NotFound naming file and tensor, IoError.
  TensorView view(std::string_view name) const;
  TensorView view(const SafetensorsEntry& entry) const;

 private:
  SafetensorsFile(std::string label, base::InputFile file)
      : label_(std::move(label)), file_(std::move(file)) {}

  std::string label_;
  base::InputFile file_;
  SafetensorsHeader header_;
  std::vector<std::size_t> by_name_;  ///< indices into entries, sorted by name
  std::uint64_t data_offset_ = 0;     ///< where the data part begins
  mutable std::vector<std::unique_ptr<std::byte[]>> views_;
};

/// Tells, for a file that is still arriving, whether its first `bytes` bytes are enough for open()
/// to decide about the header. They hold it, or a length that no header of a file of this size has.
bool decides_safetensors_header(const base::InputFile& file, std::uint64_t bytes);

/// Writes one file, tensor by tensor, so that nothing needs to be held whole. The file is neither
/// synced nor renamed before close(); one that was not closed is not complete.
class SafetensorsWriter {
 public:
  using Observer = std::function<void(std::span<const std::byte>)>;

  /// Creates or truncates `path` and writes the header. `entries` need name, dtype and shape.
  /// `observer` sees every byte in order (for digests). Throws IoError, or ResourceExhausted if
  /// the disk is full.
  SafetensorsWriter(const std::filesystem::path& path, std::vector<SafetensorsEntry> entries,
                    const SafetensorsMetadata& metadata, Observer observer = {});
  SafetensorsWriter(const SafetensorsWriter&) = delete;
  SafetensorsWriter& operator=(const SafetensorsWriter&) = delete;

  /// Returns the entries in the order in which write() expects them, offsets set.
  const std::vector<SafetensorsEntry>& entries() const { return entries_; }
  /// Writes the data of the next entry, on the host: contiguous, of its dtype and shape.
  void write(const TensorView& tensor);
  /// Writes the data of an entry in pieces: the next bytes of the entry, no more than it still
  /// lacks. An entry without bytes takes an empty piece.
  void write_part(std::span<const std::byte> bytes);
  /// Calls fsync and closes the file, after the last write().
  void close();

 private:
  void write_bytes(std::span<const std::byte> bytes);

  std::filesystem::path path_;
  std::string label_;
  std::vector<SafetensorsEntry> entries_;
  Observer observer_;
  std::size_t next_ = 0;       ///< the entry whose data are written
  std::uint64_t written_ = 0;  ///< of it
  base::UniqueFd fd_;
};

struct NamedView {
  std::string name;
  TensorView view;  ///< contiguous
};

/// Writes a whole file at once, closed. `metadata` usually holds {"format", "pt"}: transformers
/// asks for it.
void write_safetensors(const std::filesystem::path& path, const std::vector<NamedView>& tensors,
                       const SafetensorsMetadata& metadata = {{"format", "pt"}});

}  // namespace meshloom::train
