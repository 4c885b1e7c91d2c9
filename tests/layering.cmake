# cmake -DROOT=<repository> -P tests/layering.cmake
# Fails on an include against the arrows between the folders:
#
#   callbacks -> learner -> data -> kernels
#   vision    -> learner -> data -> kernels
#   data/formats stands alone and knows no LibTorch.
cmake_minimum_required(VERSION 3.25)

set(may_include_kernels kernels)
set(may_include_data data data/formats kernels)
set(may_include_data/formats data/formats)
set(may_include_learner learner data data/formats kernels)
set(may_include_callbacks callbacks learner data data/formats kernels)
set(may_include_vision vision learner data data/formats kernels)

# The folder of rules that a path, relative to the root, belongs to.
function(folder_of path result)
  if(path MATCHES "^data/formats/")
    set(${result} data/formats PARENT_SCOPE)
  else()
    string(REGEX REPLACE "/.*" "" folder "${path}")
    set(${result} ${folder} PARENT_SCOPE)
  endif()
endfunction()

set(checked 0)
foreach(top kernels data learner callbacks vision)
  file(GLOB_RECURSE files RELATIVE ${ROOT}
       ${ROOT}/${top}/*.h ${ROOT}/${top}/*.cpp ${ROOT}/${top}/*.cu ${ROOT}/${top}/*.cuh)
  foreach(file IN LISTS files)
    math(EXPR checked "${checked} + 1")
    folder_of(${file} folder)
    file(STRINGS ${ROOT}/${file} lines REGEX "^[ \t]*#[ \t]*include")
    foreach(line IN LISTS lines)
      if(line MATCHES "\"tern/([^\"]+)\"")
        folder_of(${CMAKE_MATCH_1} target)
        if(NOT target IN_LIST may_include_${folder})
          string(REPLACE ";" ", " allowed "${may_include_${folder}}")
          message(SEND_ERROR "${file}: ${line}\n${folder}/ may include: ${allowed}")
        endif()
      elseif(line MATCHES "\"")
        message(SEND_ERROR "${file}: ${line}\nOur headers are included as \"tern/folder/file.h\".")
      elseif(folder STREQUAL "data/formats" AND line MATCHES "<(torch|ATen|c10|caffe2|cuda|opencv2|fmt)[/_.]")
        message(SEND_ERROR "${file}: ${line}\ndata/formats/ is built without LibTorch, so that it can be fuzzed fast.")
      elseif(NOT folder STREQUAL "vision" AND line MATCHES "<(opencv2/|jpeglib)")
        message(SEND_ERROR "${file}: ${line}\nOnly vision/ knows OpenCV and libjpeg-turbo.")
      endif()
    endforeach()
  endforeach()
endforeach()
if(checked EQUAL 0)
  message(FATAL_ERROR "ROOT is ${ROOT}, which holds none of the folders.")
endif()
