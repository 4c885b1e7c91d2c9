# cmake -DROOT=<repository> -DBUILD=<build folder> -P tests/compile_commands.cmake
#
# Fails on a source without an entry in compile_commands.json, which editors and
# clang-tidy need.
cmake_minimum_required(VERSION 3.25)

file(STRINGS ${BUILD}/compile_commands.json lines REGEX "^  \"file\": ")
foreach(folder cmake kernels data learner callbacks vision examples tests tools)
  file(GLOB_RECURSE found ${ROOT}/${folder}/*.cpp ${ROOT}/${folder}/*.cu ${ROOT}/${folder}/*.c)
  list(APPEND sources ${found})
endforeach()
list(LENGTH sources count)
if(count LESS 300)
  message(FATAL_ERROR "Only ${count} sources are found below ${ROOT}.")
endif()
list(JOIN lines "\n" files)
foreach(source IN LISTS sources)
  string(FIND "${files}" "\"${source}\"" place)
  if(place EQUAL -1)
    message(SEND_ERROR "${source} is not in ${BUILD}/compile_commands.json; a CMakeLists.txt has to name it.")
  endif()
endforeach()
