# Functions that make a target Tern's way: one call a target.

# `#include "tern/learner/learner.h"` works in the tree as after install.
file(MAKE_DIRECTORY ${CMAKE_CURRENT_BINARY_DIR}/include)
file(CREATE_LINK ${CMAKE_CURRENT_SOURCE_DIR} ${CMAKE_CURRENT_BINARY_DIR}/include/tern SYMBOLIC)

add_library(tern_warnings INTERFACE)
target_compile_options(tern_warnings INTERFACE
  $<$<COMPILE_LANGUAGE:CXX>:-Wall -Wextra -Wno-deprecated-enum-enum-conversion -fstack-protector-strong>)
if(TERN_SANITIZE)
  target_compile_options(tern_warnings INTERFACE
    $<$<COMPILE_LANGUAGE:CXX>:-fsanitize=${TERN_SANITIZE} -fno-omit-frame-pointer>)
  target_link_options(tern_warnings INTERFACE -fsanitize=${TERN_SANITIZE})
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
function(tern_use_torch target)
  target_link_libraries(${target} PUBLIC tern_torch)
  if(NOT TARGET tern_pch)
    file(WRITE ${CMAKE_BINARY_DIR}/tern_pch.cpp "")
    add_library(tern_pch OBJECT ${CMAKE_BINARY_DIR}/tern_pch.cpp)
    target_link_libraries(tern_pch PRIVATE tern_torch tern_warnings)
    target_precompile_headers(tern_pch PRIVATE ${TERN_PCH_HEADERS})
  endif()
  target_precompile_headers(${target} REUSE_FROM tern_pch)
endfunction()

# Small files of one kind are compiled as one: reading LibTorch's headers costs
# 4 s a file, whatever is in it.
option(TERN_UNITY "Compile small files of one kind together" ON)
function(tern_together group)
  set_source_files_properties(${ARGN} TARGET_DIRECTORY tern PROPERTIES UNITY_GROUP ${group})
endfunction()

function(tern_library target export_name)
  add_library(${target} STATIC)
  add_library(tern::${export_name} ALIAS ${target})
  set_target_properties(${target} PROPERTIES EXPORT_NAME ${export_name}
    UNITY_BUILD ${TERN_UNITY} UNITY_BUILD_MODE GROUP)
  target_include_directories(${target} PUBLIC
    $<BUILD_INTERFACE:${PROJECT_BINARY_DIR}/include>
    $<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}>)
  target_link_libraries(${target} PRIVATE $<BUILD_INTERFACE:tern_warnings>)
endfunction()
