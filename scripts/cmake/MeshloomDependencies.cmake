# SPDX-License-Identifier: Apache-2.0
# The libraries Meshloom stands on, all from Debian 12 and 13 packages (scripts/setup.sh).
find_package(Threads REQUIRED)
find_package(MPI REQUIRED COMPONENTS C)
find_package(Protobuf REQUIRED)
find_package(gRPC CONFIG REQUIRED)
find_package(fmt REQUIRED)
find_package(spdlog REQUIRED)
find_package(dnnl CONFIG REQUIRED)
find_package(yaml-cpp REQUIRED)
find_package(nlohmann_json REQUIRED)
find_package(CLI11 REQUIRED)
find_package(PkgConfig REQUIRED)
pkg_check_modules(HWY REQUIRED IMPORTED_TARGET libhwy)
pkg_check_modules(XXHASH REQUIRED IMPORTED_TARGET libxxhash)
pkg_check_modules(PCRE2 REQUIRED IMPORTED_TARGET libpcre2-8)
find_package(OpenSSL REQUIRED COMPONENTS Crypto)

# yaml-cpp 0.7 and 0.8 name their targets differently.
if(NOT TARGET yaml-cpp::yaml-cpp)
  add_library(yaml-cpp::yaml-cpp ALIAS yaml-cpp)
endif()

if(MESHLOOM_OPENMP)
  find_package(OpenMP REQUIRED COMPONENTS CXX)
endif()

# Alternatives may point libopenblas.so at the pthread build, whose pool fights OpenMP's: take the OpenMP
# build's folder by name, at link time and by RPATH.
find_library(MESHLOOM_OPENBLAS_LIBRARY openblas PATH_SUFFIXES openblas-openmp NO_CACHE REQUIRED
  PATHS /usr/lib/${CMAKE_LIBRARY_ARCHITECTURE}/openblas-openmp NO_DEFAULT_PATH)
find_path(MESHLOOM_OPENBLAS_INCLUDE cblas.h NO_CACHE REQUIRED
  PATHS /usr/include/${CMAKE_LIBRARY_ARCHITECTURE}/openblas-openmp NO_DEFAULT_PATH)
add_library(meshloom_openblas INTERFACE)
get_filename_component(MESHLOOM_OPENBLAS_DIR ${MESHLOOM_OPENBLAS_LIBRARY} DIRECTORY)
target_link_libraries(meshloom_openblas INTERFACE ${MESHLOOM_OPENBLAS_LIBRARY})
target_include_directories(meshloom_openblas SYSTEM INTERFACE ${MESHLOOM_OPENBLAS_INCLUDE})
list(APPEND CMAKE_BUILD_RPATH ${MESHLOOM_OPENBLAS_DIR})
list(APPEND CMAKE_INSTALL_RPATH ${MESHLOOM_OPENBLAS_DIR})

if(MESHLOOM_TESTS)
  find_package(GTest REQUIRED)
  find_package(benchmark REQUIRED)
endif()
