# Unpacks a part of an archive of TERN_DATA into data/ and runs a program on it,
# once for each of the commands. Lists have | between their parts:
#
# cmake -DARCHIVE=clothing/clothing.tar "-DPATTERNS=*/hat/*|*/dress/*"
#       -DPROGRAM=... "-DCOMMANDS=train data --epochs 1|evaluate data"
#       -P run_on_archive.cmake
if(NOT DEFINED ENV{TERN_DATA})
  message("SKIPPED: TERN_DATA is not set, so there is no ${ARCHIVE}")
  return()
endif()
string(REPLACE "|" ";" patterns "${PATTERNS}")
string(REPLACE "|" ";" commands "${COMMANDS}")
# Unpacked for the next time too: to make and remove thousands of files takes
# longer than some of the programs.
file(TIMESTAMP $ENV{TERN_DATA}/${ARCHIVE} time)
set(wanted "${ARCHIVE} of ${time}: ${PATTERNS}")
set(unpacked "")
if(EXISTS ${CMAKE_CURRENT_BINARY_DIR}/unpacked.txt)
  file(READ unpacked.txt unpacked)
endif()
if(NOT unpacked STREQUAL wanted)
  file(REMOVE_RECURSE data unpacked.txt)
  file(ARCHIVE_EXTRACT INPUT $ENV{TERN_DATA}/${ARCHIVE} DESTINATION data PATTERNS ${patterns})
  file(WRITE unpacked.txt "${wanted}")
endif()
# Which a training would go on from.
file(REMOVE_RECURSE checkpoint log)
foreach(command IN LISTS commands)
  separate_arguments(arguments UNIX_COMMAND "${command}")
  execute_process(COMMAND ${PROGRAM} ${arguments} COMMAND_ERROR_IS_FATAL ANY)
endforeach()
