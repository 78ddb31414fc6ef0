# SPDX-License-Identifier: Apache-2.0
# Several sources of a target compiled as one: what they include is then read and instantiated once, which makes a build
# of everything shorter. A change of one source compiles its neighbours again, so it is off where one works on the code.
#
# CMake's own unity sources name what they include by its absolute path, so that ccache finds nothing in a second clone;
# these name it from the source folder on. Targets and sources are left out by CMake's properties (UNITY_BUILD,
# SKIP_UNITY_BUILD_INCLUSION).
option(MESHLOOM_UNITY "Compile several sources of a target as one" OFF)
if(MESHLOOM_UNITY)
  set(CMAKE_UNITY_BUILD ON)
  add_compile_options($<$<COMPILE_LANGUAGE:CXX>:-Wno-subobject-linkage>)  # gcc takes an included source for a header
endif()

# Sets `result` to the source's path below the source folder, or to nothing where it is to be compiled by itself.
function(meshloom_unity_member result target source)
  set(${result} "" PARENT_SCOPE)
  get_target_property(folder ${target} SOURCE_DIR)
  get_filename_component(path ${source} ABSOLUTE BASE_DIR ${folder})
  file(RELATIVE_PATH below ${PROJECT_SOURCE_DIR} ${path})
  get_source_file_property(alone ${path} TARGET_DIRECTORY ${target} SKIP_UNITY_BUILD_INCLUSION)
  string(FIND "${path}" "${PROJECT_BINARY_DIR}/" generated)
  if(source MATCHES "\\.cpp$" AND NOT alone AND NOT generated EQUAL 0)
    set(${result} ${below} PARENT_SCOPE)
  endif()
endfunction()

function(meshloom_unity_target target)
  get_target_property(sources ${target} SOURCES)
  set(others "")
  set(members "")
  foreach(source IN LISTS sources)
    meshloom_unity_member(member ${target} ${source})
    if(member)
      list(APPEND members ${member})
    else()
      list(APPEND others ${source})
    endif()
  endforeach()
  list(LENGTH members count)
  set(begin 0)
  while(begin LESS count)
    list(SUBLIST members ${begin} 6 batch)
    list(TRANSFORM batch REPLACE "(.+)" "#include \"\\1\"\n" OUTPUT_VARIABLE content)
    list(JOIN content "" content)
    set(unit ${PROJECT_BINARY_DIR}/unity/${target}_${begin}.cpp)
    file(CONFIGURE OUTPUT ${unit} CONTENT "${content}" @ONLY)
    list(APPEND others ${unit})
    math(EXPR begin "${begin} + 6")
  endwhile()
  set_target_properties(${target} PROPERTIES SOURCES "${others}" UNITY_BUILD OFF)
  target_include_directories(${target} PRIVATE ${PROJECT_SOURCE_DIR})
endfunction()

# Joins the sources of all targets of a folder and of those below it; to be called once, after the last target.
function(meshloom_unity folder)
  get_property(targets DIRECTORY ${folder} PROPERTY BUILDSYSTEM_TARGETS)
  foreach(target IN LISTS targets)
    get_target_property(joined ${target} UNITY_BUILD)
    get_target_property(type ${target} TYPE)
    if(joined AND type MATCHES "LIBRARY|EXECUTABLE" AND NOT type STREQUAL INTERFACE_LIBRARY)
      meshloom_unity_target(${target})
    endif()
  endforeach()
  get_property(folders DIRECTORY ${folder} PROPERTY SUBDIRECTORIES)
  foreach(below IN LISTS folders)
    meshloom_unity(${below})
  endforeach()
endfunction()
