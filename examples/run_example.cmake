# Runs a program in its test's folder, once for each command. Files of an earlier
# run are removed first, so that nothing is resumed or mistaken for output of this
# run. A command that begins with "75: " must end with this exit code. Lists are
# separated by |:
#
# cmake -DPROGRAM=... "-DCOMMANDS=train data --epochs 1|evaluate data"
#       -P run_example.cmake
#
# With -DARCHIVE=clothing/clothing.tar "-DPATTERNS=*/hat/*|*/dress/*" it first
# unpacks the matching files of this archive in TERN_DATA into data/.
#
# With -DFIND_DATA=build/examples/find_digits the program's TERN_CACHE is the parent
# of the folder that this command prints.
#
# With "-DNOTEBOOK=python|tools/notebook.py|run|examples/mnist.cpp|pages|--" this
# command runs the program. With -DWRITTEN=drawn/a.png the program must write this
# file. The whole output must match EXPECTED.
#
# The environment variable TERN_EMULATOR names an emulator for a cross-compiled build.
separate_arguments(emulator UNIX_COMMAND "$ENV{TERN_EMULATOR}")
string(REPLACE "|" ";" patterns "${PATTERNS}")
string(REPLACE "|" ";" commands "${COMMANDS}")
string(REPLACE "|" ";" notebook "${NOTEBOOK}")
if(ARCHIVE AND NOT DEFINED ENV{TERN_DATA})
  if(DEFINED ENV{CI} AND NOT DEFINED ENV{TERN_DATA_OPTIONAL})
    message(FATAL_ERROR "TERN_DATA is not set, so there is no ${ARCHIVE}, and CI must not skip tests. "
      "Set TERN_DATA to the folder with the real data, or set TERN_DATA_OPTIONAL=1 if there is none.")
  endif()
  message("SKIPPED: TERN_DATA is not set, so there is no ${ARCHIVE}")
  return()
endif()

set(is_unpacked FALSE)
if(ARCHIVE)
  # The unpacked files are kept for the next run: creating and removing thousands of
  # files takes longer than some of the programs.
  file(TIMESTAMP $ENV{TERN_DATA}/${ARCHIVE} time)
  set(wanted "${ARCHIVE} of ${time}: ${PATTERNS}")
  if(EXISTS ${CMAKE_CURRENT_BINARY_DIR}/unpacked.txt)
    file(READ unpacked.txt unpacked)
    string(COMPARE EQUAL "${unpacked}" "${wanted}" is_unpacked)
  endif()
endif()
file(GLOB left LIST_DIRECTORIES TRUE ${CMAKE_CURRENT_BINARY_DIR}/*)
if(is_unpacked)
  list(FILTER left EXCLUDE REGEX "/(data|unpacked.txt)$")
endif()
if(left)
  file(REMOVE_RECURSE ${left})
endif()
if(ARCHIVE AND NOT is_unpacked)
  file(ARCHIVE_EXTRACT INPUT $ENV{TERN_DATA}/${ARCHIVE} DESTINATION data PATTERNS ${patterns})
  file(WRITE unpacked.txt "${wanted}")
endif()

if(FIND_DATA)
  execute_process(COMMAND ${emulator} ${FIND_DATA} OUTPUT_VARIABLE folder COMMAND_ERROR_IS_FATAL ANY)
  cmake_path(GET folder PARENT_PATH cache)
  set(ENV{TERN_CACHE} ${cache})
endif()

foreach(command IN LISTS commands)
  set(expected_code 0)
  if(command MATCHES "^ *([0-9]+): (.*)")
    set(expected_code ${CMAKE_MATCH_1})
    set(command ${CMAKE_MATCH_2})
  endif()
  separate_arguments(arguments UNIX_COMMAND "${command}")
  execute_process(COMMAND ${notebook} ${emulator} ${PROGRAM} ${arguments}
    OUTPUT_VARIABLE printed ECHO_OUTPUT_VARIABLE RESULT_VARIABLE code)
  if(NOT code STREQUAL expected_code)
    message(FATAL_ERROR "${PROGRAM} ${command}: exit code ${code}, expected ${expected_code}")
  endif()
  string(APPEND output "${printed}")
endforeach()

foreach(file IN LISTS WRITTEN)
  if(NOT EXISTS ${CMAKE_CURRENT_BINARY_DIR}/${file})
    message(FATAL_ERROR "${PROGRAM} has not written ${file}")
  endif()
endforeach()
if(NOT output MATCHES "${EXPECTED}")
  message(FATAL_ERROR "the output of ${PROGRAM} does not match ${EXPECTED}")
endif()
