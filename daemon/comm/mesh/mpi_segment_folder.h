// SPDX-License-Identifier: Apache-2.0
// MpiSegmentFolder: where Open MPI puts its shared-memory files, and their removal while they are
// in use.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "daemon/comm/mesh/mpi_environment.h"

namespace meshloom::comm {

/// Open MPI's shared-memory files of this host take at most so much room.
struct SegmentRoom {
  int ranks = 1;                    ///< that this host has, as the launcher tells; 1 if it does not
  std::uint64_t segment_bytes = 0;  ///< that the file of each rank takes

  std::uint64_t needed() const { return static_cast<std::uint64_t>(ranks) * segment_bytes; }
};
/// Returns what the environment of this rank says of both.
SegmentRoom segment_room(const EnvironmentLookup&);

/// Returns the first of these folders that has the room, and puts what is wrong with those before
/// it into `note` (empty if nothing is). A folder that is not there, or that this process may not
/// write into, is passed over. Throws ResourceExhausted (MPI_SEGMENTS_NO_ROOM), which tells of each
/// folder, if none has.
std::filesystem::path choose_segment_folder(const std::vector<std::filesystem::path>& folders,
                                            const SegmentRoom& room, std::string* note);

/// Open MPI leaves its segment files behind when a rank is killed, and where they do not fit
/// MPI_Init ends the process without a cause, or a rank dies by SIGBUS later. Made before
/// MPI_Init, this gives it a private folder in shared memory, or, if that is too small, in the
/// launcher's session folder or among temporary files; `hide` removes that with all files once
/// every rank of the host has mapped them (mappings outlive their names). MPI_Finalize
/// complains if it finds nothing to remove, so `show` puts empty files of the same names back:
/// under mpirun into its session folder, which it clears whatever happens to the ranks. A rank that
/// is killed inside MPI_Init leaves its folder to the next start on this machine. Does
/// nothing if the user chose a folder, or for a rank that is alone.
class MpiSegmentFolder {
 public:
  /// Makes the folder. Throws as choose_segment_folder() does.
  MpiSegmentFolder();
  ~MpiSegmentFolder();
  MpiSegmentFolder(const MpiSegmentFolder&) = delete;
  MpiSegmentFolder& operator=(const MpiSegmentFolder&) = delete;

  /// Returns why the files are not in shared memory; empty if they are.
  const std::string& note() const { return note_; }
  /// Removes the folder and its files, once every rank of the host has mapped them.
  void hide();
  /// Puts empty files of the same names back, before MPI_Finalize.
  void show();

 private:
  std::string memory_;  ///< the folder
  std::string name_;    ///< what Open MPI is told: the folder, or a link to it
  std::string note_;
  std::vector<std::string> files_;
};

}  // namespace meshloom::comm
