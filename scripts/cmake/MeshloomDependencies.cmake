# SPDX-License-Identifier: Apache-2.0
# The libraries Meshloom stands on, all from Debian 12 and 13 packages (scripts/setup.sh). The build finds those of the
# engine as the installed package does, and needs each of them.
set(CMAKE_FIND_PACKAGE_NAME Meshloom)
set(Meshloom_FIND_REQUIRED TRUE)
include(MeshloomEngineDependencies)
unset(CMAKE_FIND_PACKAGE_NAME)
unset(Meshloom_FIND_REQUIRED)

find_package(Protobuf REQUIRED)
find_package(gRPC CONFIG REQUIRED)
find_package(yaml-cpp REQUIRED)
find_package(CLI11 REQUIRED)
pkg_check_modules(PCRE2 REQUIRED IMPORTED_TARGET libpcre2-8)

# yaml-cpp 0.7 and 0.8 name their targets differently.
if(NOT TARGET yaml-cpp::yaml-cpp)
  add_library(yaml-cpp::yaml-cpp ALIAS yaml-cpp)
endif()

get_filename_component(MESHLOOM_OPENBLAS_DIR ${MESHLOOM_OPENBLAS_LIBRARY} DIRECTORY)
list(APPEND CMAKE_BUILD_RPATH ${MESHLOOM_OPENBLAS_DIR})
list(APPEND CMAKE_INSTALL_RPATH ${MESHLOOM_OPENBLAS_DIR})

if(MESHLOOM_TESTS)
  find_package(GTest REQUIRED)
  find_package(benchmark REQUIRED)
endif()
