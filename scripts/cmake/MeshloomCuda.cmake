# SPDX-License-Identifier: Apache-2.0
# Where CUDA's toolkit is, whether the CUDA backend is built, and how (meshloom_cuda_library). What
# scripts/cuda_toolkit.sh has put into build/cuda-toolkit goes first, then nvcc on the PATH, then /usr/local/cuda.
#
# Sets, for all folders:
#   MESHLOOM_CUDA_BUILT           whether meshloom_cuda_library may be called, by MESHLOOM_CUDA and what was found
#   MESHLOOM_CUDA_TOOLKIT_FOUND   the toolkit's folder, with bin/nvcc; empty where there is none
#   MESHLOOM_CUDA_HEADERS         folders of CUDA's own headers, for what is compiled without nvcc; empty where there are none
#   MESHLOOM_PLUGIN_FOLDER        where plugins lie, seen from the folder of the programs, built and installed alike
set(MESHLOOM_CUDA "OFF" CACHE STRING "The CUDA backend: ON builds it or says what is missing, AUTO where all is found, OFF never")
set_property(CACHE MESHLOOM_CUDA PROPERTY STRINGS OFF AUTO ON)
set(MESHLOOM_CUDA_ARCHITECTURES "80;90;100" CACHE STRING "Compute capabilities that it is built for")
set(MESHLOOM_CUDA_TOOLKIT "" CACHE PATH "Folder of the CUDA toolkit; empty: as MeshloomCuda.cmake says")
if(NOT MESHLOOM_CUDA MATCHES "^(OFF|AUTO|ON)$")
  message(FATAL_ERROR "MESHLOOM_CUDA is \"${MESHLOOM_CUDA}\", expected OFF, AUTO or ON")
endif()

set(cuda_wheels ${PROJECT_SOURCE_DIR}/build/cuda-toolkit)
file(GLOB cuda_wheel_roots ${cuda_wheels}/nvidia/cu[0-9]*)
file(GLOB cuda_wheel_folders ${cuda_wheels}/nvidia/*)

# CUDA's compiler and its folder.
set(cuda_compiler ${CMAKE_CUDA_COMPILER})
if(MESHLOOM_CUDA_TOOLKIT)
  find_program(cuda_compiler nvcc PATHS ${MESHLOOM_CUDA_TOOLKIT}/bin NO_CACHE NO_DEFAULT_PATH)
else()
  find_program(cuda_compiler nvcc PATHS ${cuda_wheel_roots} PATH_SUFFIXES bin NO_CACHE NO_DEFAULT_PATH)
  find_program(cuda_compiler nvcc PATHS /usr/local/cuda/bin NO_CACHE)
endif()
set(MESHLOOM_CUDA_TOOLKIT_FOUND "")
set(cuda_missing "")
if(cuda_compiler)
  get_filename_component(cuda_compiler ${cuda_compiler} REALPATH)
  execute_process(COMMAND ${cuda_compiler} --version OUTPUT_VARIABLE cuda_version ERROR_QUIET)
  string(REGEX REPLACE ".*release ([0-9]+\\.[0-9]+),.*" "\\1" cuda_version "${cuda_version}")
  if(cuda_version VERSION_LESS 12.8)
    list(APPEND cuda_missing "nvcc 12.8 or newer (${cuda_compiler} is ${cuda_version})")
  else()
    get_filename_component(MESHLOOM_CUDA_TOOLKIT_FOUND ${cuda_compiler}/../.. REALPATH)
  endif()
else()
  list(APPEND cuda_missing nvcc)
endif()

# Headers and libraries: in the toolkit, in the wheels, and where Debian packages put what is not of CUDA itself. Libraries
# are asked for by the names without version that links have.
set(cuda_folders ${MESHLOOM_CUDA_TOOLKIT_FOUND} ${cuda_wheel_folders} ${cuda_wheels})
set(cuda_targets targets/${CMAKE_SYSTEM_PROCESSOR}-linux)
macro(meshloom_find_cuda_header variable name)
  find_path(${variable} ${name} PATHS ${cuda_folders} ${ARGN}
    PATH_SUFFIXES include ${cuda_targets}/include include/${CMAKE_LIBRARY_ARCHITECTURE} NO_CACHE NO_DEFAULT_PATH)
endmacro()
macro(meshloom_find_cuda_library variable name)
  find_library(${variable} ${name} PATHS ${cuda_folders} ${ARGN}
    PATH_SUFFIXES lib64 lib ${cuda_targets}/lib lib/${CMAKE_LIBRARY_ARCHITECTURE} NO_CACHE NO_DEFAULT_PATH)
endmacro()
meshloom_find_cuda_header(cuda_runtime_include cuda_runtime_api.h)
meshloom_find_cuda_header(cublas_include cublasLt.h)
meshloom_find_cuda_header(cudnn_include cudnn.h /usr /usr/local)
meshloom_find_cuda_header(cudnn_frontend_include cudnn_frontend.h /usr /usr/local)
meshloom_find_cuda_header(nccl_include nccl.h /usr /usr/local)
meshloom_find_cuda_library(cudart_library cudart_static)
meshloom_find_cuda_library(cublas_library cublasLt)
meshloom_find_cuda_library(cudnn_library cudnn /usr /usr/local)
meshloom_find_cuda_library(nccl_library nccl /usr /usr/local)
# What cuDNN's frontend compiles kernels with.
meshloom_find_cuda_library(nvrtc_library nvrtc)

set(MESHLOOM_CUDA_HEADERS "")
if(cuda_runtime_include AND EXISTS ${cuda_runtime_include}/crt/host_defines.h)
  string(REGEX REPLACE "/$" "" MESHLOOM_CUDA_HEADERS ${cuda_runtime_include})
endif()
foreach(part cuda_runtime_include cublas_include cudnn_include cudnn_frontend_include nccl_include
    cudart_library cublas_library cudnn_library nccl_library nvrtc_library)
  if(NOT ${part})
    string(REGEX REPLACE "_include$" "'s headers" words ${part})
    string(REPLACE "_library" "'s library" words ${words})
    string(REPLACE "_" "-" words ${words})
    list(APPEND cuda_missing ${words})
  endif()
endforeach()

# A compiler that does not take the host's or the architectures ends here and not in the build's midst.
if(NOT cuda_missing AND NOT MESHLOOM_CUDA STREQUAL OFF)
  set(cuda_tried "${cuda_compiler} ${cuda_version} ${CMAKE_CXX_COMPILER} ${CMAKE_CXX_COMPILER_VERSION} ${MESHLOOM_CUDA_ARCHITECTURES}")
  if(NOT MESHLOOM_CUDA_TRIED STREQUAL cuda_tried)
    file(WRITE ${CMAKE_BINARY_DIR}/cuda_trial.cu "__global__ void trial(float* y) { *y = 1.0f; }\n")
    list(TRANSFORM MESHLOOM_CUDA_ARCHITECTURES REPLACE "^([0-9]+[af]?).*" "-gencode=arch=compute_\\1,code=sm_\\1"
      OUTPUT_VARIABLE cuda_trial_targets)
    execute_process(COMMAND ${cuda_compiler} -std=c++20 -ccbin ${CMAKE_CXX_COMPILER} ${cuda_trial_targets}
      -c ${CMAKE_BINARY_DIR}/cuda_trial.cu -o ${CMAKE_BINARY_DIR}/cuda_trial.o
      RESULT_VARIABLE cuda_trial OUTPUT_VARIABLE cuda_trial_text ERROR_VARIABLE cuda_trial_text)
    if(cuda_trial EQUAL 0)
      set(MESHLOOM_CUDA_TRIED ${cuda_tried} CACHE INTERNAL "The compiler and architectures that a kernel was compiled with")
    else()
      list(APPEND cuda_missing "an nvcc that compiles with ${CMAKE_CXX_COMPILER}: ${cuda_trial_text}")
    endif()
  endif()
endif()

list(JOIN cuda_missing ", " cuda_missing_text)
set(MESHLOOM_CUDA_BUILT FALSE)
if(MESHLOOM_CUDA STREQUAL ON AND cuda_missing)
  message(FATAL_ERROR "MESHLOOM_CUDA=ON, but there is no ${cuda_missing_text}. scripts/setup.sh --cuda gets what is missing; "
    "-DMESHLOOM_CUDA=OFF builds for CPUs alone")
elseif(NOT MESHLOOM_CUDA STREQUAL OFF AND NOT cuda_missing)
  set(MESHLOOM_CUDA_BUILT TRUE)
endif()

# scripts/test.sh tells it at its end.
set(cuda_left_out "")
if(MESHLOOM_CUDA STREQUAL AUTO AND NOT MESHLOOM_CUDA_BUILT)
  list(APPEND cuda_left_out "the CUDA backend (no ${cuda_missing_text})")
endif()
if(MESHLOOM_TESTS AND NOT MESHLOOM_CUDA_HEADERS)
  list(APPEND cuda_left_out "the tests on an emulated GPU (no CUDA headers)")
endif()
list(JOIN cuda_left_out " and " cuda_left_out)
set(MESHLOOM_CUDA_LEFT_OUT "${cuda_left_out}" CACHE INTERNAL "What is left out, and why")
if(cuda_left_out)
  message(STATUS "Left out: ${cuda_left_out}; scripts/setup.sh --cuda-headers gets what is missing")
endif()

include(GNUInstallDirs)
set(plugin_destination ${CMAKE_INSTALL_LIBDIR}/meshloom)
file(RELATIVE_PATH MESHLOOM_PLUGIN_FOLDER ${CMAKE_INSTALL_FULL_BINDIR} ${CMAKE_INSTALL_FULL_LIBDIR}/meshloom)

if(MESHLOOM_CUDA_BUILT)
  set(CMAKE_CUDA_COMPILER ${cuda_compiler})
  set(CMAKE_CUDA_HOST_COMPILER ${CMAKE_CXX_COMPILER})
  # PTX for the newest of them alone: later GPUs run that.
  set(CMAKE_CUDA_ARCHITECTURES ${MESHLOOM_CUDA_ARCHITECTURES})
  list(TRANSFORM CMAKE_CUDA_ARCHITECTURES REPLACE "^[0-9]+$" "\\0-real")
  list(POP_BACK CMAKE_CUDA_ARCHITECTURES)
  list(GET MESHLOOM_CUDA_ARCHITECTURES -1 cuda_newest)
  list(APPEND CMAKE_CUDA_ARCHITECTURES ${cuda_newest})
  if(MESHLOOM_CCACHE_LAUNCHER AND NOT CMAKE_CUDA_COMPILER_LAUNCHER)
    set(CMAKE_CUDA_COMPILER_LAUNCHER ${MESHLOOM_CCACHE_LAUNCHER})
  endif()
  set(CMAKE_CUDA_FLAGS_RELEASE "-O3 -DNDEBUG")
  enable_language(CUDA)
  if(NOT CMAKE_CUDA20_STANDARD_COMPILE_OPTION)  # CMake 3.25 knows no flag of nvcc for C++20
    set(CMAKE_CUDA20_STANDARD_COMPILE_OPTION -std=c++20)
    set(CMAKE_CUDA20_EXTENSION_COMPILE_OPTION -std=c++20)
  endif()
  message(STATUS "CUDA backend: for ${MESHLOOM_CUDA_ARCHITECTURES} by nvcc ${cuda_version} of ${MESHLOOM_CUDA_TOOLKIT_FOUND}")

  # The runtime is linked statically and opens the driver (libcuda) itself, at its first call.
  find_package(Threads REQUIRED)
  add_library(meshloom_cuda_libraries INTERFACE)
  target_include_directories(meshloom_cuda_libraries SYSTEM INTERFACE
    ${cuda_runtime_include} ${cublas_include} ${cudnn_include} ${cudnn_frontend_include} ${nccl_include})
  target_link_libraries(meshloom_cuda_libraries INTERFACE
    ${cudnn_library} ${cublas_library} ${nccl_library} ${nvrtc_library} ${cudart_library} Threads::Threads rt ${CMAKE_DL_LIBS})
endif()

# A plugin lib<name>.so of .cu files (nvcc) and .cpp files (as all others, with their own symbols hidden). It is linked with
# static CUDA's runtime, cuBLASLt, cuDNN, NCCL where it uses them, and LIBRARIES; what those archives hold stays inside. It
# looks for libraries beside itself, where they were found here, and then as the loader does.
function(meshloom_cuda_library name)
  cmake_parse_arguments(ARG "" "" "SOURCES;LIBRARIES" ${ARGN})
  set(kernels ${ARG_SOURCES})
  list(FILTER kernels INCLUDE REGEX "\\.cu$")
  list(FILTER ARG_SOURCES EXCLUDE REGEX "\\.cu$")
  # Objects of their own, since nvcc need not take what the libraries ask of the host's compiler. It finds CUDA's headers
  # itself, and ccache does not make paths behind its -isystem= relative, so that a clone would not find another's objects.
  add_library(${name}_kernels OBJECT ${kernels})
  target_include_directories(${name}_kernels PRIVATE ${PROJECT_SOURCE_DIR})
  target_compile_options(${name}_kernels PRIVATE --expt-relaxed-constexpr -lineinfo
    -Xptxas=-warn-spills -Xcompiler=-Wall,-ffp-contract=off)
  if(MESHLOOM_WERROR)
    target_compile_options(${name}_kernels PRIVATE -Werror=all-warnings -Xptxas=-Werror)
  endif()
  set_target_properties(${name}_kernels PROPERTIES CUDA_STANDARD 20 CUDA_EXTENSIONS OFF
    CUDA_VISIBILITY_PRESET hidden CUDA_RUNTIME_LIBRARY Static)

  add_library(${name} MODULE ${ARG_SOURCES} $<TARGET_OBJECTS:${name}_kernels>)
  target_include_directories(${name} PRIVATE ${PROJECT_SOURCE_DIR})
  target_link_libraries(${name} PRIVATE ${ARG_LIBRARIES} meshloom_cuda_libraries)
  # What templates of the C++ library define is unique to a process, and would be exported in spite of all else.
  set(exports ${CMAKE_BINARY_DIR}/plugin_exports.map)
  file(CONFIGURE OUTPUT ${exports} CONTENT "{ global: meshloom_*; local: *; };\n" @ONLY)
  target_link_options(${name} PRIVATE -Wl,--exclude-libs,ALL -Wl,--as-needed -Wl,--version-script=${exports})
  set_target_properties(${name} PROPERTIES LINK_DEPENDS ${exports})
  if(NOT MESHLOOM_SANITIZE)
    target_link_options(${name} PRIVATE -Wl,-z,defs)
  endif()
  set(folders ${cublas_library} ${cudnn_library} ${nccl_library} ${nvrtc_library})
  list(TRANSFORM folders REPLACE "/[^/]*$" "")
  list(REMOVE_DUPLICATES folders)
  set_target_properties(${name} PROPERTIES
    LINKER_LANGUAGE CXX CXX_VISIBILITY_PRESET hidden VISIBILITY_INLINES_HIDDEN ON
    LIBRARY_OUTPUT_DIRECTORY ${CMAKE_RUNTIME_OUTPUT_DIRECTORY}/${MESHLOOM_PLUGIN_FOLDER}
    BUILD_WITH_INSTALL_RPATH ON
    INSTALL_RPATH "$ORIGIN;${folders};${CMAKE_INSTALL_RPATH}")
  install(TARGETS ${name} LIBRARY DESTINATION ${plugin_destination})
endfunction()
