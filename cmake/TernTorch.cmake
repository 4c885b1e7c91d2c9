# LibTorch as programs of Tern link it: headers, libtorch_cpu and libc10. Not by
# find_package(Torch), which for a LibTorch with CUDA, PyPI's wheel for one, fails
# without a CUDA toolkit; only compiling kernels takes one. The build includes this
# file, and so does the installed ternConfig.cmake.

# tern_find_torch(ERROR) sets Torch_DIR, Torch_VERSION, TORCH_INSTALL_PREFIX and
# TORCH_INCLUDE_DIRS, or ERROR to why it cannot.
function(tern_find_torch error)
  # Python's torch.utils.cmake_prefix_path is LibTorch's share/cmake.
  find_path(Torch_DIR TorchConfigVersion.cmake NO_DEFAULT_PATH
    HINTS ${Torch_ROOT} ENV Torch_ROOT ${CMAKE_PREFIX_PATH} ENV CMAKE_PREFIX_PATH
    PATHS $ENV{HOME}/.cache/tern/libtorch-2.11.0 /usr/local /usr
    PATH_SUFFIXES share/cmake/Torch Torch DOC "Folder of LibTorch's TorchConfig.cmake")
  if(NOT EXISTS ${Torch_DIR}/TorchConfigVersion.cmake)
    set(wanted 2.11.0)
    if(tern_torch_version)  # which an installed Tern was built with
      set(wanted ${tern_torch_version})
    endif()
    set(${error} "LibTorch was not found (Torch_DIR is '${Torch_DIR}'). Install it, `pip install torch==${wanted}`, and give CMake the folder: -DTorch_DIR=LIBTORCH/share/cmake/Torch, or LIBTORCH in CMAKE_PREFIX_PATH." PARENT_SCOPE)
    return()
  endif()
  cmake_path(CONVERT "${Torch_DIR}/../../.." TO_CMAKE_PATH_LIST prefix NORMALIZE)
  cmake_path(ABSOLUTE_PATH prefix)
  string(REGEX REPLACE "/$" "" prefix "${prefix}")
  file(STRINGS ${Torch_DIR}/TorchConfigVersion.cmake version REGEX "set\\(PACKAGE_VERSION ")
  string(REGEX MATCH "[0-9]+[.][0-9]+[.][0-9]+" version "${version}")
  set(Torch_VERSION ${version} PARENT_SCOPE)
  set(TORCH_INSTALL_PREFIX ${prefix} PARENT_SCOPE)
  set(TORCH_INCLUDE_DIRS ${prefix}/include ${prefix}/include/torch/csrc/api/include PARENT_SCOPE)
endfunction()

# tern_link_torch(TARGET): its interface gets LibTorch, though not where it is
# exported to: it lies elsewhere on the next machine.
# torch_cpu, not torch: a program on a machine without a GPU then starts without
# loading 2 GB of CUDA libraries; kernels/load_cuda.cpp loads them when there is a
# driver. By --no-as-needed, so that every program names libtorch_cpu itself and
# no other library's BLAS can step in front of it.
function(tern_link_torch target)
  set(lib ${TORCH_INSTALL_PREFIX}/lib)
  # What LibTorch was compiled with decides what its headers of processes declare.
  file(READ ${TORCH_INSTALL_PREFIX}/share/cmake/Caffe2/Caffe2Targets.cmake text)
  string(REGEX MATCH "set_target_properties\\(torch_cpu PROPERTIES[^)]*" text "${text}")
  if(text MATCHES "INTERFACE_COMPILE_DEFINITIONS \"([^\"]*)\"")
    target_compile_definitions(${target} INTERFACE "$<BUILD_INTERFACE:${CMAKE_MATCH_1}>")
  endif()
  target_include_directories(${target} SYSTEM INTERFACE "$<BUILD_INTERFACE:${TORCH_INCLUDE_DIRS}>")
  target_link_libraries(${target} INTERFACE
    "$<BUILD_INTERFACE:-Wl,--no-as-needed,\"${lib}/libtorch_cpu.so\" -Wl,--as-needed;${lib}/libc10.so>")
endfunction()

# tern_find_torch_cuda(LIBRARIES MAJOR ERROR): libc10_cuda and the runtime of that
# version of CUDA, which LibTorch loads too.
function(tern_find_torch_cuda libraries major error)
  file(REAL_PATH ${TORCH_INSTALL_PREFIX} prefix)
  find_file(cudart libcudart.so.${major} NO_CACHE NO_DEFAULT_PATH
    HINTS ${prefix}/lib ${prefix}/../nvidia/cu${major}/lib
      ${CUDAToolkit_ROOT}/lib64 $ENV{CUDAToolkit_ROOT}/lib64 $ENV{CUDA_HOME}/lib64
    PATHS /usr/local/cuda/lib64)
  if(EXISTS ${prefix}/lib/libc10_cuda.so AND cudart)
    set(${libraries} ${prefix}/lib/libc10_cuda.so ${cudart} PARENT_SCOPE)
  else()
    set(${error} "tern was built with CUDA ${major}, and LibTorch in ${TORCH_INSTALL_PREFIX} was not. Set Torch_DIR to one that was, or build tern with -DTERN_CUDA=OFF." PARENT_SCOPE)
  endif()
endfunction()
