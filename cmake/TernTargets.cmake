# Functions that make a target Tern's way: one call a target.

# `#include "tern/learner/learner.h"` works in the tree as after install.
file(MAKE_DIRECTORY ${CMAKE_CURRENT_BINARY_DIR}/include)
file(CREATE_LINK ${CMAKE_CURRENT_SOURCE_DIR} ${CMAKE_CURRENT_BINARY_DIR}/include/tern SYMBOLIC)

add_library(tern_warnings INTERFACE)
target_compile_options(tern_warnings INTERFACE
  $<$<COMPILE_LANGUAGE:CXX>:-Wall -Wextra -Wno-deprecated-enum-enum-conversion -fstack-protector-strong>)
if(TERN_SANITIZE)
  # vptr asks for type information that LibTorch hides.
  target_compile_options(tern_warnings INTERFACE
    $<$<COMPILE_LANGUAGE:CXX>:-fsanitize=${TERN_SANITIZE} -fno-sanitize=vptr -fno-omit-frame-pointer>)
  target_link_options(tern_warnings INTERFACE -fsanitize=${TERN_SANITIZE})
  target_compile_definitions(tern_warnings INTERFACE TERN_SANITIZED)
endif()

# Everything that includes LibTorch shares one precompiled header. It holds what
# every file needs and no more: torch/torch.h in it would cost 4 s a file, since
# GCC instantiates the templates of its layers anew in each. Parsing
# torch/types.h without it takes 9 s.
set(TERN_PCH_HEADERS <torch/types.h> <torch/utils.h> <torch/nn/module.h> <torch/nn/pimpl.h>
  <torch/optim/optimizer.h> <torch/serialize/archive.h> <fmt/format.h> <fmt/ranges.h>)
# Clang instantiates once, so what most files need may be in it too.
if(CMAKE_CXX_COMPILER_ID MATCHES "Clang")
  list(APPEND TERN_PCH_HEADERS <torch/nn/modules/container/any.h> <torch/nn/modules/loss.h>
    <filesystem> <fstream> <functional>)
endif()
# tern_precompiled_header(TARGET LIBRARIES... HEADERS HEADERS...)
function(tern_precompiled_header target)
  cmake_parse_arguments(arg "" "" "HEADERS" ${ARGN})
  file(WRITE ${CMAKE_BINARY_DIR}/${target}.cpp "")
  add_library(${target} OBJECT ${CMAKE_BINARY_DIR}/${target}.cpp)
  target_link_libraries(${target} PRIVATE ${arg_UNPARSED_ARGUMENTS})
  target_include_directories(${target} PRIVATE ${CMAKE_CURRENT_BINARY_DIR}/CMakeFiles/${target}.dir)
  target_precompile_headers(${target} PRIVATE ${arg_HEADERS})
endfunction()

function(tern_use_torch target)
  target_link_libraries(${target} PUBLIC tern_torch)
  if(NOT TARGET tern_pch)
    tern_precompiled_header(tern_pch tern_torch tern_warnings HEADERS ${TERN_PCH_HEADERS})
  endif()
  target_precompile_headers(${target} REUSE_FROM tern_pch)
endfunction()

# Small files of one kind are compiled as one: reading LibTorch's headers costs
# 4 s a file, whatever is in it.
option(TERN_UNITY "Compile small files of one kind together" ON)

# tern_expand(VARIABLE NAMES... [EXCEPT NAMES...] [ENDING _test.cpp]): a name with
# * stands for all files of that name and ending but the exceptions, those that
# come later too, so that who adds one has no list to change.
function(tern_expand variable)
  cmake_parse_arguments(arg "" "ENDING" "EXCEPT" ${ARGN})
  set(names "")
  foreach(name IN LISTS arg_UNPARSED_ARGUMENTS)
    if(name MATCHES "[*]")
      file(GLOB found CONFIGURE_DEPENDS RELATIVE ${CMAKE_CURRENT_SOURCE_DIR} ${name}${arg_ENDING})
      if(arg_ENDING)
        list(TRANSFORM found REPLACE "${arg_ENDING}$" "")
      endif()
      list(REMOVE_ITEM found ${arg_EXCEPT})
      list(APPEND names ${found})
    else()
      list(APPEND names ${name})
    endif()
  endforeach()
  list(REMOVE_DUPLICATES names)
  set(${variable} ${names} PARENT_SCOPE)
endfunction()

# tern_sources(TARGET GROUP FILES... [EXCEPT FILES...]) adds sources to a target;
# those of one group are compiled together.
function(tern_sources target group)
  tern_expand(files ${ARGN})
  target_sources(${target} PRIVATE ${files})
  set_source_files_properties(${files} TARGET_DIRECTORY ${target} PROPERTIES UNITY_GROUP ${group})
endfunction()

# Does at the end of a folder what UNITY_BUILD_MODE GROUP does, with two
# differences. The files are included by their path from the repository's root,
# so that every clone has the same text and ccache knows it. And TARGET_files,
# which nobody builds, has each file by itself: compile_commands.json gets their
# commands from there, for editors and clang-tidy.
function(tern_join_groups target)
  if(TERN_UNITY)
    cmake_language(EVAL CODE "cmake_language(DEFER CALL tern_join_groups_now ${target})")
  endif()
endfunction()

function(tern_join_groups_now target)
  get_target_property(sources ${target} SOURCES)
  get_target_property(folder ${target} SOURCE_DIR)
  foreach(source IN LISTS sources)
    get_source_file_property(group ${source} TARGET_DIRECTORY ${target} UNITY_GROUP)
    if(group)
      cmake_path(ABSOLUTE_PATH source BASE_DIRECTORY ${folder})
      list(APPEND groups ${group})
      list(APPEND files_of_${group} ${source})
    else()
      list(APPEND remaining ${source})
    endif()
  endforeach()
  list(REMOVE_DUPLICATES groups)
  foreach(group IN LISTS groups)
    set(includes "")
    foreach(source IN LISTS files_of_${group})
      cmake_path(RELATIVE_PATH source BASE_DIRECTORY ${PROJECT_SOURCE_DIR} OUTPUT_VARIABLE path)
      string(APPEND includes "#include \"${path}\"\n")
    endforeach()
    set(unit ${PROJECT_BINARY_DIR}/together/${target}/${group}.cpp)
    file(CONFIGURE OUTPUT ${unit} CONTENT "${includes}" @ONLY)
    set_source_files_properties(${unit} TARGET_DIRECTORY ${target} PROPERTIES
      INCLUDE_DIRECTORIES ${PROJECT_SOURCE_DIR})
    list(APPEND units ${unit})
    list(APPEND together ${files_of_${group}})
  endforeach()
  set_target_properties(${target} PROPERTIES SOURCES "${remaining};${units}")

  add_library(${target}_files OBJECT EXCLUDE_FROM_ALL ${together})
  foreach(property COMPILE_DEFINITIONS COMPILE_OPTIONS INCLUDE_DIRECTORIES LINK_LIBRARIES
      PRECOMPILE_HEADERS_REUSE_FROM)
    get_target_property(value ${target} ${property})
    if(value)
      set_target_properties(${target}_files PROPERTIES ${property} "${value}")
    endif()
  endforeach()
endfunction()

# tern_path_constant(TARGET NAME PATH): a path of this machine, as the constant
# tern::NAME in a file of its own. As a definition of the target it would make
# ccache compile all of the target anew in each clone.
function(tern_path_constant target name path)
  set(file ${PROJECT_BINARY_DIR}/generated/${target}_${name}.cpp)
  file(GENERATE OUTPUT ${file} CONTENT
    "namespace tern {\nextern const char* const ${name};\nconst char* const ${name} = \"${path}\";\n}\n")
  target_sources(${target} PRIVATE ${file})
  set_source_files_properties(${file} TARGET_DIRECTORY ${target} PROPERTIES SKIP_PRECOMPILE_HEADERS ON)
endfunction()

function(tern_library target export_name)
  add_library(${target} STATIC)
  add_library(tern::${export_name} ALIAS ${target})
  set_target_properties(${target} PROPERTIES EXPORT_NAME ${export_name})
  target_include_directories(${target} PUBLIC
    $<BUILD_INTERFACE:${PROJECT_BINARY_DIR}/include>
    $<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}>)
  target_link_libraries(${target} PRIVATE $<BUILD_INTERFACE:tern_warnings>)
  tern_join_groups(${target})
endfunction()
