# SPDX-License-Identifier: Apache-2.0
# Precompiled headers of libraries: reading gRPC's, protobuf's, GoogleTest's and CLI11's again for each file takes an
# eighth to two fifths of its time. Of this tree they hold only what the build generates. Sources include what they
# use all the same: -DMESHLOOM_PRECOMPILE=OFF builds without, as scripts/lint.sh reads them.
# CLI11 is in those of commands and benchmarks alone: whoever reads it compiles its constants, for over two seconds.
option(MESHLOOM_PRECOMPILE "Precompile the headers of libraries" ON)

set(standard_headers <algorithm> <array> <atomic> <chrono> <cmath> <condition_variable> <cstdint> <filesystem> <fstream>
  <functional> <map> <memory> <mutex> <numeric> <optional> <random> <set> <span> <sstream> <string> <string_view>
  <thread> <unordered_map> <utility> <variant> <vector> <fmt/format.h> <fmt/ranges.h> <spdlog/spdlog.h>)
set(service_headers <grpcpp/grpcpp.h> <v1/config.pb.h> <v1/job.pb.h> <v1/job_service.pb.h> <v1/plan.pb.h> <v1/run.pb.h>
  <v1/run_service.grpc.pb.h> <v1/step.pb.h>)
set(command_headers <CLI/CLI.hpp> <nlohmann/json.hpp>)
set(test_headers <gtest/gtest.h> <gmock/gmock.h>)

# Programs are compiled with other flags than libraries, and a precompiled header holds for one set of flags.
function(meshloom_precompiled name type)
  cmake_parse_arguments(ARG "" "" "HEADERS;LIBRARIES" ${ARGN})
  set(source ${CMAKE_BINARY_DIR}/precompiled/${name}.cpp)
  if(NOT EXISTS ${source})
    file(WRITE ${source} "int main() {}\n")
  endif()
  if(type STREQUAL PROGRAM)
    add_executable(${name} EXCLUDE_FROM_ALL ${source})
  else()
    add_library(${name} OBJECT EXCLUDE_FROM_ALL ${source})
  endif()
  target_link_libraries(${name} PRIVATE spdlog::spdlog fmt::fmt ${ARG_LIBRARIES})
  target_precompile_headers(${name} PRIVATE ${ARG_HEADERS})
  # ccache takes a precompiled header that is there for one that is used, and the digest of the old one into the key of
  # the new one.
  if(MESHLOOM_CCACHE_LAUNCHER)
    set_target_properties(${name} PROPERTIES CXX_COMPILER_LAUNCHER
      "${PROJECT_SOURCE_DIR}/scripts/cmake/without_old_output.sh;${MESHLOOM_CCACHE_LAUNCHER}")
  endif()
endfunction()

# Lets targets of the same type and flags begin with what meshloom_precompiled(NAME ..) holds; what its libraries ask of
# the compiler (Abseil of Debian 13 defines a macro) holds for them too, or gcc would leave it unused. What gcc inlines
# from there it takes for code of this tree, and warns of right code of its own strings.
function(meshloom_use_precompiled name)
  if(MESHLOOM_PRECOMPILE)
    foreach(target IN LISTS ARGN)
      target_precompile_headers(${target} REUSE_FROM ${name})
      target_compile_options(${target} PRIVATE $<TARGET_PROPERTY:${name},COMPILE_OPTIONS>
        $<$<CXX_COMPILER_ID:GNU>:-Wno-array-bounds;-Wno-restrict;-Wno-stringop-overflow>)
    endforeach()
  endif()
endfunction()

if(MESHLOOM_PRECOMPILE)
  meshloom_precompiled(precompiled_standard LIBRARY HEADERS ${standard_headers})
  meshloom_precompiled(precompiled_services LIBRARY HEADERS ${standard_headers} ${service_headers}
    LIBRARIES meshloom_proto_services)
  meshloom_precompiled(precompiled_commands LIBRARY HEADERS ${standard_headers} ${service_headers} ${command_headers}
    LIBRARIES meshloom_proto_services CLI11::CLI11 nlohmann_json::nlohmann_json)
endif()
