// SPDX-License-Identifier: Apache-2.0
// MpiSegmentFolder: where Open MPI puts its shared-memory files, and their removal while they are
// in use.
#pragma once

#include <string>
#include <vector>

namespace meshloom::comm {

/// Open MPI leaves its segment files behind when a rank is killed. Made before MPI_Init, this gives
/// it a private folder in shared memory; `hide` removes that with all files once every rank of the
/// host has mapped them (mappings outlive their names). MPI_Finalize complains if it finds
/// nothing to remove, so `show` puts empty files of the same names back: under mpirun into its
/// session folder, which it clears whatever happens to the ranks. A rank that is killed inside
/// MPI_Init leaves its folder to the next start on this machine. Does nothing if the user chose
/// a folder or there is no /dev/shm.
class MpiSegmentFolder {
 public:
  MpiSegmentFolder();
  ~MpiSegmentFolder();
  MpiSegmentFolder(const MpiSegmentFolder&) = delete;
  MpiSegmentFolder& operator=(const MpiSegmentFolder&) = delete;

  void hide();
  void show();

 private:
  std::string memory_;  ///< the folder in /dev/shm
  std::string name_;    ///< what Open MPI is told: the folder, or a link to it
  std::vector<std::string> files_;
};

}  // namespace meshloom::comm
