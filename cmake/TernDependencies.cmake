# Finds the libraries that Tern is built on, and sets the compiler options that go with them.
# `./dev` installs all of them; docs/building.md says which are always needed and which go with an option.
set(CMAKE_CXX_STANDARD 20)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_CUDA_STANDARD 17)  # CMake 3.25 does not support C++20 with nvcc 13
set(CMAKE_CUDA_RUNTIME_LIBRARY Shared)
set(CMAKE_POSITION_INDEPENDENT_CODE ON)
# Executables too, or they could not use the libraries' precompiled header.
add_compile_options($<$<COMPILE_LANGUAGE:CXX>:-fPIC>)
# __FILE__ and std::source_location name files from the project's folder on: ccache
# gives the same object to every clone, and another clone's folder may be gone.
cmake_path(IS_PREFIX PROJECT_SOURCE_DIR ${PROJECT_BINARY_DIR} NORMALIZE is_built_inside)
if(is_built_inside)
  add_compile_options($<$<COMPILE_LANGUAGE:CXX>:-fmacro-prefix-map=${PROJECT_SOURCE_DIR}/=>)
endif()
# Lets ccache see through precompiled headers.
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
  add_compile_options($<$<COMPILE_LANGUAGE:CXX>:-fpch-preprocess>)
else()
  add_compile_options("$<$<COMPILE_LANGUAGE:CXX>:SHELL:-Xclang -fno-pch-timestamp>")
  # And across clones. CMake's own flags have absolute paths that ccache does
  # not see behind -Xclang, and a precompiled header names its files by their
  # absolute paths: here those below -isysroot, which means nothing else for
  # Linux, are relative. tern_precompiled_header has the folder of cmake_pch.hxx.
  set(CMAKE_CXX_COMPILE_OPTIONS_CREATE_PCH -isysroot ${PROJECT_SOURCE_DIR} -relocatable-pch
    -Xclang -emit-pch -Xclang -include -Xclang cmake_pch.hxx -x c++-header)
  set(CMAKE_CXX_COMPILE_OPTIONS_USE_PCH -isysroot ${PROJECT_SOURCE_DIR} -include-pch <PCH_FILE>)
endif()
if(NOT CMAKE_BUILD_TYPE)
  set(CMAKE_BUILD_TYPE Release CACHE STRING "" FORCE)
endif()
# LibTorch's headers give classes, RecordFunction for one, other members without
# NDEBUG than its own libraries were compiled with.
add_compile_definitions($<$<NOT:$<CONFIG:Release>>:NDEBUG>)
# The kernels ask for -O3 themselves; elsewhere it only costs compile time.
set(CMAKE_CXX_FLAGS_RELEASE "-O2 -DNDEBUG")
# sm_80 also runs on 8.6 and 8.9; PTX of 9.0 covers what comes after.
set(TORCH_CUDA_ARCH_LIST "7.5;8.0;9.0+PTX" CACHE STRING "GPU generations that the kernels are compiled for")

# A project that adds Tern as a subdirectory links these too.
set(CMAKE_FIND_PACKAGE_TARGETS_GLOBAL ON)
find_package(Threads REQUIRED)
include(TernTorch)
set(tern_error "")
tern_find_torch(tern_error)
if(tern_error)
  message(FATAL_ERROR "${tern_error}")
elseif(NOT Torch_VERSION MATCHES "^2[.](9|10|11)[.]")
  message(FATAL_ERROR "LibTorch in ${Torch_DIR} is version ${Torch_VERSION}; expected 2.9, 2.10 or 2.11. Set Torch_DIR to a supported LibTorch.")
endif()
if(TERN_CUDA)
  if(CMAKE_CUDA_COMPILER)
    set(TERN_NVCC ${CMAKE_CUDA_COMPILER})
  endif()
  find_program(TERN_NVCC nvcc NO_DEFAULT_PATH DOC "The compiler of a CUDA toolkit 13"
    HINTS ${CUDA_TOOLKIT_ROOT_DIR} ${CUDAToolkit_ROOT} ENV CUDAToolkit_ROOT ENV CUDA_HOME ENV CUDA_PATH
    PATHS ENV PATH /usr/local/cuda $ENV{HOME}/.cache/tern/cuda-13 PATH_SUFFIXES bin .)
  if(NOT TERN_NVCC)
    message(FATAL_ERROR "TERN_CUDA is ON, but CUDA toolkit 13 was not found. Set CUDA_HOME, install the toolkit (`./dev build` does), or build without CUDA (-DTERN_CUDA=OFF).")
  endif()
  # LibTorch's own package for its CUDA libraries and the flags of nvcc. It looks
  # for the toolkit in three ways.
  set(CMAKE_CUDA_COMPILER ${TERN_NVCC} CACHE FILEPATH "nvcc")
  cmake_path(GET TERN_NVCC PARENT_PATH toolkit)
  cmake_path(GET toolkit PARENT_PATH toolkit)
  set(CUDA_TOOLKIT_ROOT_DIR ${toolkit} CACHE PATH "The CUDA toolkit")
  set(CUDAToolkit_ROOT ${toolkit} CACHE PATH "The CUDA toolkit")
  find_package(Torch REQUIRED)
endif()
find_package(OpenSSL REQUIRED COMPONENTS Crypto)
find_package(ZLIB REQUIRED)
find_package(nlohmann_json REQUIRED)
if(TERN_ARCHIVES)
  find_package(LibArchive REQUIRED)
  find_package(pugixml REQUIRED)
  find_package(CURL 7.85 REQUIRED)
  find_package(PkgConfig REQUIRED)
  pkg_check_modules(RSVG REQUIRED IMPORTED_TARGET GLOBAL librsvg-2.0)
  # -pthread would be another setting than that of the precompiled header.
  set_property(TARGET PkgConfig::RSVG PROPERTY INTERFACE_COMPILE_OPTIONS "")
endif()
if(TERN_DISTRIBUTED)
  find_path(GLOO_INCLUDE_DIR gloo/transport/device.h REQUIRED)  # libgloo-dev
endif()

# The wheel ships fmt 12 as headers alone; a distribution's older, compiled fmt
# must not shadow it. Header-only it would cost every file that prints 6 s.
add_library(tern_fmt STATIC ${CMAKE_CURRENT_LIST_DIR}/fmt.cpp)
add_library(tern::fmt ALIAS tern_fmt)
set_target_properties(tern_fmt PROPERTIES EXPORT_NAME fmt)
target_include_directories(tern_fmt SYSTEM PRIVATE ${TORCH_INCLUDE_DIRS})

add_library(tern_torch INTERFACE)
add_library(tern::torch ALIAS tern_torch)
set_target_properties(tern_torch PROPERTIES EXPORT_NAME torch)
tern_link_torch(tern_torch)
target_link_libraries(tern_torch INTERFACE tern_fmt Threads::Threads)
target_compile_features(tern_torch INTERFACE cxx_std_20)
# LibTorch's symbols are named as GCC names them; Clang does otherwise since 18.
target_compile_options(tern_torch INTERFACE
  "$<$<AND:$<COMPILE_LANG_AND_ID:CXX,Clang>,$<VERSION_GREATER_EQUAL:$<CXX_COMPILER_VERSION>,18>>:-fclang-abi-compat=17>")

if(TERN_CUDA)
  # What the kernels link; the installed ternConfig.cmake looks for it again.
  add_library(tern_torch_cuda INTERFACE)
  set_target_properties(tern_torch_cuda PROPERTIES EXPORT_NAME torch_cuda)
  target_link_libraries(tern_torch_cuda INTERFACE $<BUILD_INTERFACE:c10_cuda> $<BUILD_INTERFACE:torch::cudart>)
endif()

# The Python that the LibTorch wheel is installed beside, if it is a wheel, for
# the tests that compare with PyTorch or call it.
if(TERN_TESTS)
  # Torch_DIR may lead there through a link, and .. must start at its end.
  file(REAL_PATH ${TORCH_INSTALL_PREFIX} torch_folder)
  find_program(TERN_PYTHON python
    PATHS ${torch_folder}/../../../../bin NO_DEFAULT_PATH DOC "Python with the LibTorch wheel")
endif()

if(TERN_VISION)
  if(NOT TERN_ARCHIVES)
    message(FATAL_ERROR "TERN_VISION needs TERN_ARCHIVES: image folders come as archives.")
  endif()
  set(opencv core imgproc imgcodecs)
  if(TERN_EXAMPLES OR TERN_TESTS)
    list(APPEND opencv calib3d features2d videoio)  # of matting_predict
  endif()
  if(TERN_TESTS)
    list(APPEND opencv dnn)  # which reads what export_onnx writes
  endif()
  find_package(OpenCV 4 REQUIRED COMPONENTS ${opencv})
  find_package(JPEG REQUIRED)  # libjpeg-turbo, which vision/decode/decode_jpeg.cpp checks
endif()
if(TERN_EXAMPLES OR (TERN_BENCH AND TERN_VISION))
  find_package(CLI11 REQUIRED)
endif()
