# SPDX-License-Identifier: Apache-2.0
# What cmake --install puts where, by the folders of GNUInstallDirs. Component Runtime is what runs without the source
# tree, Development the engine's libraries (meshloom_library(.. INSTALLED)), their headers and find_package(Meshloom).
include(CMakePackageConfigHelpers)
set(package_folder ${CMAKE_INSTALL_LIBDIR}/cmake/Meshloom)
set(include_folder ${CMAKE_INSTALL_INCLUDEDIR}/meshloom)

# The programs, what shells and man read, and the configs beside the demo that submits them.
install(TARGETS meshloomd meshloom RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
install(DIRECTORY ${CMAKE_BINARY_DIR}/share/ DESTINATION ${CMAKE_INSTALL_DATADIR} PATTERN man EXCLUDE)
install(DIRECTORY ${CMAKE_BINARY_DIR}/share/man/ DESTINATION ${CMAKE_INSTALL_MANDIR})
set(data_folder ${CMAKE_INSTALL_DATADIR}/meshloom)
install(DIRECTORY configs DESTINATION ${data_folder})
install(PROGRAMS scripts/quickstart.sh DESTINATION ${data_folder}/scripts)
install(FILES scripts/common.sh DESTINATION ${data_folder}/scripts)
install(PROGRAMS scripts/image/entrypoint.sh DESTINATION ${data_folder}/scripts/image)
install(FILES LICENSE CHANGELOG.md DESTINATION ${CMAKE_INSTALL_DOCDIR})

# Headers keep their paths below the repository root. Of the CPU's kernels a program needs one, of daemon/base what
# those of comm include.
foreach(folder kernels/base planner daemon/tensor daemon/comm daemon/dtensor daemon/nn daemon/parallel)
  install(DIRECTORY ${folder}/ DESTINATION ${include_folder}/${folder} COMPONENT Development
    FILES_MATCHING PATTERN *.h)
endforeach()
file(GLOB kernel_interfaces CONFIGURE_DEPENDS kernels/*.h)
install(FILES ${kernel_interfaces} DESTINATION ${include_folder}/kernels COMPONENT Development)
install(FILES kernels/cpu/cpu_device.h DESTINATION ${include_folder}/kernels/cpu COMPONENT Development)
install(FILES daemon/base/unique_fd.h DESTINATION ${include_folder}/daemon/base COMPONENT Development)

install(EXPORT MeshloomTargets NAMESPACE Meshloom:: DESTINATION ${package_folder} COMPONENT Development)
configure_package_config_file(${CMAKE_CURRENT_LIST_DIR}/MeshloomConfig.cmake.in
  ${CMAKE_BINARY_DIR}/MeshloomConfig.cmake INSTALL_DESTINATION ${package_folder})
# Before version 1 a change of the minor version may break what is built on it.
write_basic_package_version_file(${CMAKE_BINARY_DIR}/MeshloomConfigVersion.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${CMAKE_BINARY_DIR}/MeshloomConfig.cmake ${CMAKE_BINARY_DIR}/MeshloomConfigVersion.cmake
  ${CMAKE_CURRENT_LIST_DIR}/MeshloomEngineDependencies.cmake DESTINATION ${package_folder} COMPONENT Development)
