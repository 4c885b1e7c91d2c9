# Runs a program in its test's folder, once for each of the commands. What an
# earlier run left there is removed first, so that nothing is resumed or taken for
# this run's. Lists have | between their parts:
#
# cmake -DPROGRAM=... "-DCOMMANDS=train data --epochs 1|evaluate data"
#       -P run_example.cmake
#
# With -DARCHIVE=clothing/clothing.tar "-DPATTERNS=*/hat/*|*/dress/*" it unpacks a
# part of an archive of TERN_DATA into data/ first.
string(REPLACE "|" ";" patterns "${PATTERNS}")
string(REPLACE "|" ";" commands "${COMMANDS}")
if(ARCHIVE AND NOT DEFINED ENV{TERN_DATA})
  message("SKIPPED: TERN_DATA is not set, so there is no ${ARCHIVE}")
  return()
endif()

set(is_unpacked FALSE)
if(ARCHIVE)
  # Unpacked for the next time too: to make and remove thousands of files takes
  # longer than some of the programs.
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

foreach(command IN LISTS commands)
  separate_arguments(arguments UNIX_COMMAND "${command}")
  execute_process(COMMAND ${PROGRAM} ${arguments} COMMAND_ERROR_IS_FATAL ANY)
endforeach()
