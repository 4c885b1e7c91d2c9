# Installs BUILD into a separate folder, moves it, and builds and runs the
# external project against it. See tools.cmake for the other arguments.
set(folder ${BUILD}/tests/install)

separate_arguments(emulator UNIX_COMMAND "$ENV{TERN_EMULATOR}")
function(run)
  execute_process(COMMAND ${ARGN} RESULT_VARIABLE result OUTPUT_VARIABLE output ERROR_VARIABLE output)
  if(NOT result EQUAL 0)
    message(FATAL_ERROR "${ARGN}\nended with ${result}:\n${output}")
  endif()
endfunction()

file(REMOVE_RECURSE ${folder}/first ${folder}/prefix)
run(${CMAKE_COMMAND} --install ${BUILD} --prefix ${folder}/first)
# The package must be relocatable.
file(RENAME ${folder}/first ${folder}/prefix)

if(EXISTS ${folder}/prefix/include/tern/learner/loop.h)
  message(FATAL_ERROR "learner/loop.h is private, but it is installed")
endif()

file(GLOB_RECURSE files ${folder}/prefix/*.cmake)
foreach(file IN LISTS files)
  file(STRINGS ${file} lines REGEX "${BUILD}|${TORCH}")
  if(lines)
    message(FATAL_ERROR "${file} names a folder of this machine: ${lines}")
  endif()
endforeach()
# The libraries contain no such paths either, except those in messages:
# C10_CUDA_CHECK names its header, and sanitizers name each source.
file(GLOB files ${folder}/prefix/${LIBDIR}/libtern*)
execute_process(COMMAND grep -a -o -h "${BUILD}[^[:cntrl:]\"]*" ${files} OUTPUT_VARIABLE lines)
string(REGEX REPLACE "[^\n]*/include/tern/[a-z_/]+[.]h\n" "" lines "${lines}")
if((lines AND NOT CXX_FLAGS) OR NOT files)
  message(FATAL_ERROR "The libraries name the folder they were built in, or none are installed:\n${lines}")
endif()
foreach(file LICENSE NOTICE copyright)
  file(GLOB found ${folder}/prefix/share/doc/tern*/${file})
  if(NOT found)
    message(FATAL_ERROR "${file} is not installed")
  endif()
endforeach()

foreach(tool IN LISTS TOOLS)
  run(${emulator} ${folder}/prefix/bin/${tool} --help)
endforeach()

# The Debian package has the same content, without the tools.
find_program(DPKG_DEB dpkg-deb)
if(DPKG_DEB)
  file(REMOVE_RECURSE ${folder}/package)
  run(cpack --config ${BUILD}/CPackConfig.cmake -B ${folder}/package)
  file(GLOB package ${folder}/package/tern*_*.deb)
  run(${DPKG_DEB} --extract ${package} ${folder}/package/root)
  file(GLOB_RECURSE expected RELATIVE ${folder}/prefix ${folder}/prefix/*)
  list(FILTER expected EXCLUDE REGEX "^bin/")
  file(GLOB_RECURSE packaged RELATIVE ${folder}/package/root/usr ${folder}/package/root/usr/*)
  if(NOT packaged STREQUAL expected)
    message(FATAL_ERROR "${package} holds\n${packaged}\ninstead of\n${expected}")
  endif()
endif()

set(ENV{CMAKE_CXX_COMPILER_LAUNCHER} "${LAUNCHER}")
run(${CMAKE_COMMAND} -S ${SOURCE} -B ${folder}/build -G ${GENERATOR}
  -DCMAKE_BUILD_TYPE=Release -DCMAKE_CXX_FLAGS_RELEASE=-DNDEBUG  # halves GCC's time
  ${TOOLCHAIN} -DCMAKE_CXX_COMPILER=${CXX} -DCMAKE_CXX_FLAGS=${CXX_FLAGS}
  -Dtern_DIR=${folder}/prefix/${LIBDIR}/cmake/tern
  -DTorch_DIR=${TORCH})
# A machine that only uses Tern needs no CUDA toolkit.
file(STRINGS ${folder}/build/CMakeCache.txt lines REGEX "nvcc|CUDA_TOOLKIT")
if(lines)
  message(FATAL_ERROR "The external project looked for a CUDA toolkit: ${lines}")
endif()
run(${CMAKE_COMMAND} --build ${folder}/build)

file(GLOB programs ${folder}/build/line ${folder}/build/images)
foreach(program IN LISTS programs)
  run(${emulator} ${program})
endforeach()
# The library that a program opens to train on a GPU is found at its new
# location.
if(EXISTS ${folder}/prefix/${LIBDIR}/libtern_cuda_graph.so)
  file(READ_ELF ${folder}/build/line RUNPATH places)
  string(FIND "${places}" "${folder}/prefix/${LIBDIR}" place)
  if(place EQUAL -1)
    message(FATAL_ERROR "libtern_cuda_graph.so is looked for in: ${places}")
  endif()
endif()

list(LENGTH programs count)
if(VISION AND NOT count EQUAL 2 OR count EQUAL 0)
  message(FATAL_ERROR "The external project built only: ${programs}")
endif()

# Unsupported configurations are rejected with a reason.
run(${CMAKE_COMMAND} -S ${SOURCE}/refusals -B ${folder}/refusals -G ${GENERATOR} -DCMAKE_CXX_COMPILER=${CXX}
  -DPACKAGE=${folder}/prefix/${LIBDIR}/cmake/tern -DTORCH=${TORCH} -DVISION=${VISION} -DCUDA=${CUDA})
