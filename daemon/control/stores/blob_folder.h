// SPDX-License-Identifier: Apache-2.0
// BlobFolder: the files of uploads, and of bytes by their content.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>

#include "daemon/base/unique_fd.h"

namespace meshloom::control {

///   SHA256           bytes that are whole and right, read-only
///   incoming/ID      an upload: a file of the declared size, filled from its beginning
/// Errors are those of base/files.h; ResourceExhausted (DISK_FULL) if the disk is full.
class BlobFolder {
 public:
  /// Makes the folders.
  explicit BlobFolder(std::filesystem::path root);

  std::filesystem::path blob(const std::string& sha256) const { return root_ / sha256; }
  std::filesystem::path incoming(const std::string& id) const { return root_ / "incoming" / id; }
  bool has_blob(const std::string& sha256, std::int64_t size) const;

  /// Who knows what the files are of.
  class Known {
   public:
    virtual ~Known() = default;
    virtual bool knows_blob(const std::string& sha256) const = 0;
    virtual bool knows_upload(const std::string& id) const = 0;
  };

  /// A new file of `size` bytes that takes no room yet.
  void create_incoming(const std::string& id, std::int64_t size) const;
  /// For reading and writing. Refuses links, and a file that has another name as well: what is
  /// written through a name of this folder must not reach a file elsewhere.
  base::UniqueFd open_incoming(const std::string& id) const;
  void remove_incoming(const std::string& id) const;

  /// The bytes of an upload get their name, durably; the upload keeps its own. Bytes that are there
  /// stay.
  void keep(const std::string& id, const std::string& sha256) const;
  void remove_blob(const std::string& sha256) const;

  /// Moves every file of which nobody knows to the LostFolder of the state dir. One that is a
  /// second name of an upload that is known is removed: a daemon has died between keep() and its
  /// record.
  void sweep(const Known& known) const;

  /// What the file system has left for this user.
  std::int64_t available_bytes() const;

 private:
  std::filesystem::path root_;
};

}  // namespace meshloom::control
