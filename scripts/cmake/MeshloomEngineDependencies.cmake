# SPDX-License-Identifier: Apache-2.0
# The libraries that the engine stands on (what is installed as Meshloom::*). The build of this tree and the installed
# package find them by this file; whoever includes it has set CMAKE_FIND_PACKAGE_NAME, as find_package does, and
# MESHLOOM_OPENMP. Where one is missing, ${CMAKE_FIND_PACKAGE_NAME}_NOT_FOUND_MESSAGE says which.
include(CMakeFindDependencyMacro)
find_dependency(Threads)
find_dependency(MPI COMPONENTS C)
find_dependency(fmt)
find_dependency(spdlog)
find_dependency(dnnl CONFIG)
find_dependency(nlohmann_json)
find_dependency(OpenSSL COMPONENTS Crypto SSL)
if(MESHLOOM_OPENMP)
  find_dependency(OpenMP COMPONENTS CXX)
endif()
find_dependency(PkgConfig)

set(required "")
if(${CMAKE_FIND_PACKAGE_NAME}_FIND_REQUIRED)
  set(required REQUIRED)
endif()
pkg_check_modules(HWY ${required} QUIET IMPORTED_TARGET libhwy)
pkg_check_modules(XXHASH ${required} QUIET IMPORTED_TARGET libxxhash)

# Alternatives may point libopenblas.so at the pthread build, whose pool fights OpenMP's: take the OpenMP
# build's folder by name, at link time and by RPATH.
find_library(MESHLOOM_OPENBLAS_LIBRARY openblas PATH_SUFFIXES openblas-openmp NO_CACHE ${required}
  PATHS /usr/lib/${CMAKE_LIBRARY_ARCHITECTURE}/openblas-openmp NO_DEFAULT_PATH)
find_path(MESHLOOM_OPENBLAS_INCLUDE cblas.h NO_CACHE ${required}
  PATHS /usr/include/${CMAKE_LIBRARY_ARCHITECTURE}/openblas-openmp NO_DEFAULT_PATH)

foreach(found HWY_FOUND XXHASH_FOUND MESHLOOM_OPENBLAS_LIBRARY MESHLOOM_OPENBLAS_INCLUDE)
  if(NOT ${found})
    set(${CMAKE_FIND_PACKAGE_NAME}_NOT_FOUND_MESSAGE "Meshloom needs libhwy, libxxhash and libopenblas-openmp: ${found} is not set")
    set(${CMAKE_FIND_PACKAGE_NAME}_FOUND FALSE)
    return()
  endif()
endforeach()

if(NOT TARGET Meshloom::openblas)
  add_library(Meshloom::openblas INTERFACE IMPORTED)
  target_link_libraries(Meshloom::openblas INTERFACE ${MESHLOOM_OPENBLAS_LIBRARY})
  target_include_directories(Meshloom::openblas SYSTEM INTERFACE ${MESHLOOM_OPENBLAS_INCLUDE})
endif()
