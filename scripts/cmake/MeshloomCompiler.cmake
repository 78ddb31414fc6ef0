# SPDX-License-Identifier: Apache-2.0
# Language level, warnings, sanitizers, output folders, ccache and a faster linker where they are installed.
set(CMAKE_CXX_STANDARD 20)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_POSITION_INDEPENDENT_CODE ON)
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)
set(CMAKE_RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/bin)
if(NOT CMAKE_BUILD_TYPE)
  set(CMAKE_BUILD_TYPE Release)
endif()

# One binary runs on every CPU of an architecture: own kernels dispatch at run time, so -march stays at its default.
# -O2 with assertions off; contraction is off so that every path rounds the same way.
set(CMAKE_CXX_FLAGS_RELEASE "-O2 -DNDEBUG")
set(for_host COMPILE_LANGUAGE:C,CXX)  # nvcc knows none of these (MeshloomCuda.cmake)
add_compile_options("$<$<${for_host}>:-Wall;-Wextra;-Wshadow;-ffp-contract=off;-fno-math-errno;-pthread>")
add_compile_options($<$<COMPILE_LANGUAGE:CXX>:-Wnon-virtual-dtor> $<$<COMPILE_LANGUAGE:CXX>:-Woverloaded-virtual>)
if(MESHLOOM_WERROR)
  add_compile_options($<$<${for_host}>:-Werror>)
endif()

if(MESHLOOM_SANITIZE)
  add_compile_options("$<$<${for_host}>:-fsanitize=${MESHLOOM_SANITIZE};-fno-omit-frame-pointer;-g>")
  add_link_options(-fsanitize=${MESHLOOM_SANITIZE})
endif()

# An object that any clone has compiled serves all others: paths below the source folder count as relative, and none of
# them stands in an object, whose debug information names its sources from the source folder on.
add_compile_options($<$<AND:$<${for_host}>,$<CXX_COMPILER_ID:GNU>>:-ffile-prefix-map=${PROJECT_SOURCE_DIR}=.>)
find_program(MESHLOOM_CCACHE ccache)
if(MESHLOOM_CCACHE AND NOT CMAKE_CXX_COMPILER_LAUNCHER)
  # Digests of precompiled headers, of a hundred megabytes and more each, are kept by inode and time (INODECACHE).
  set(ccache_settings CCACHE_BASEDIR=${PROJECT_SOURCE_DIR} CCACHE_NOHASHDIR=1 CCACHE_INODECACHE=1
    CCACHE_SLOPPINESS=pch_defines,time_macros)
  # What was included is read from the compiler's dependency file, so that no source is preprocessed twice. ccache makes
  # paths in it relative, but not those that have to be escaped there: a second clone would go by the first one's headers.
  if(PROJECT_SOURCE_DIR MATCHES "^[A-Za-z0-9/._+-]+$")
    list(APPEND ccache_settings CCACHE_DEPEND=1)
  else()
    list(APPEND ccache_settings CCACHE_NODEPEND=1)
  endif()
  set(MESHLOOM_CCACHE_LAUNCHER ${CMAKE_COMMAND} -E env ${ccache_settings} ${MESHLOOM_CCACHE})
  set(CMAKE_CXX_COMPILER_LAUNCHER ${MESHLOOM_CCACHE_LAUNCHER})
  # ccache asks for it where headers are precompiled.
  add_compile_options($<$<AND:$<COMPILE_LANGUAGE:CXX>,$<CXX_COMPILER_ID:GNU>>:-fpch-preprocess>)
endif()
find_program(MESHLOOM_MOLD mold)
if(MESHLOOM_MOLD AND NOT MESHLOOM_SANITIZE)
  add_link_options(-fuse-ld=mold)
endif()

# The usual shape of a folder's library: explicit sources, public includes from the repository root, and, where it is
# worth it, PRECOMPILED headers by name (MeshloomPrecompile.cmake). An INSTALLED one is Meshloom::NAME to programs
# that find_package(Meshloom), without the prefix meshloom_; what it links is INSTALLED too, or found by
# MeshloomEngineDependencies.cmake.
function(meshloom_library name)
  cmake_parse_arguments(ARG "INSTALLED" "PRECOMPILED" "SOURCES;PUBLIC;PRIVATE" ${ARGN})
  add_library(${name} STATIC ${ARG_SOURCES})
  target_include_directories(${name} PUBLIC
    $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}> $<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}/meshloom>)
  target_link_libraries(${name} PUBLIC ${ARG_PUBLIC} PRIVATE ${ARG_PRIVATE})
  if(ARG_INSTALLED)
    string(REGEX REPLACE "^meshloom_" "" export_name ${name})
    set_target_properties(${name} PROPERTIES EXPORT_NAME ${export_name})
    target_compile_features(${name} PUBLIC cxx_std_20)
    install(TARGETS ${name} EXPORT MeshloomTargets
      ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR} COMPONENT Development)
  endif()
  if(ARG_PRECOMPILED)
    meshloom_use_precompiled(${ARG_PRECOMPILED} ${name})
  endif()
endfunction()
