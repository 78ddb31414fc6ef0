// SPDX-License-Identifier: Apache-2.0
#include "daemon/comm/mesh/mpi_segment_folder.h"

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <system_error>

namespace meshloom::comm {
namespace {

// Open MPI 4 calls its shared-memory transport vader, Open MPI 5 sm.
constexpr const char* kParameters[] = {"OMPI_MCA_btl_vader_backing_directory",
                                       "OMPI_MCA_btl_sm_backing_directory"};

}  // namespace

MpiSegmentFolder::MpiSegmentFolder() {
  for (const char* parameter : kParameters)
    if (std::getenv(parameter) != nullptr) return;
  char folder[] = "/dev/shm/meshloom-mpi-XXXXXX";
  if (mkdtemp(folder) == nullptr) return;
  folder_ = folder;
  for (const char* parameter : kParameters) setenv(parameter, folder, 1);
}

MpiSegmentFolder::~MpiSegmentFolder() {
  if (folder_.empty()) return;
  std::error_code ignored;
  std::filesystem::remove_all(folder_, ignored);
}

void MpiSegmentFolder::hide() {
  if (folder_.empty()) return;
  std::error_code ignored;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(folder_, ignored))
    if (entry.is_regular_file(ignored)) files_.push_back(entry.path());
  std::filesystem::remove_all(folder_, ignored);
  // Programs that this one starts are not to look there.
  for (const char* parameter : kParameters) unsetenv(parameter);
}

void MpiSegmentFolder::show() {
  std::error_code ignored;
  for (const std::string& file : files_) {
    std::filesystem::create_directories(std::filesystem::path(file).parent_path(), ignored);
    std::ofstream(file).flush();
  }
}

}  // namespace meshloom::comm
