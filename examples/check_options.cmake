# Runs a program with --help, with an unknown option, and with values outside the
# range of each numeric option that --help lists. Each invalid run must end with an
# error message before anything is trained or written.
#
# cmake -DPROGRAM=build/examples/mnist -P check_options.cmake, in a separate folder
separate_arguments(emulator UNIX_COMMAND "$ENV{TERN_EMULATOR}")
set(folder ${CMAKE_CURRENT_BINARY_DIR}/empty)
file(REMOVE_RECURSE ${folder})
file(MAKE_DIRECTORY ${folder})
# A program that needs data would download it to this folder.
set(ENV{TERN_CACHE} ${folder}/cache)

# Runs the program with the arguments; sets `code`, `output`, `error` and `told`.
macro(run)
  execute_process(COMMAND ${emulator} ${PROGRAM} ${ARGN}
    WORKING_DIRECTORY ${folder} TIMEOUT 60
    RESULT_VARIABLE code OUTPUT_VARIABLE output ERROR_VARIABLE error)
  file(GLOB_RECURSE written LIST_DIRECTORIES TRUE ${folder}/*)
  set(told "${PROGRAM} ${ARGN}: exit code ${code}\n${output}${error}")
  if(written)
    message(FATAL_ERROR "${told}\nIt has written ${written}; expected nothing.")
  endif()
endmacro()

# Runs the program with the arguments; its message on stderr must contain `sentence`.
macro(expect_refusal sentence)
  run(${ARGN})
  string(FIND "${error}" "${sentence}" place)
  if(NOT code MATCHES "^[1-9][0-9]*$" OR place EQUAL -1 OR output)
    message(FATAL_ERROR "${told}\nExpected an error message with: ${sentence}")
  endif()
endmacro()

run(--help)
set(help "${output}")
if(NOT code EQUAL 0 OR error OR NOT help MATCHES "^[^\n]+\nUsage: [^\n]+\n")
  message(FATAL_ERROR "${told}\nExpected a description and the usage.")
endif()

# Required arguments come first, or the program would report them as missing.
set(required "")
string(REGEX MATCHALL "\n  [a-z-]+ TEXT REQUIRED" lines "${help}")
foreach(line IN LISTS lines)
  string(REGEX MATCH "--[a-z-]+" name "${line}")
  list(APPEND required ${name} x)
endforeach()
if(help MATCHES "Subcommands:\n  ([a-z]+)")
  list(APPEND required ${CMAKE_MATCH_1} x)
endif()
expect_refusal("The following argument was not expected: --nonsense" ${required} --nonsense)

string(REGEX MATCHALL "--[a-z-]+ (INT|UINT|FLOAT)[^ =\n]*" options "${help}")
list(FILTER options EXCLUDE REGEX "\\|")  # one of a few numbers
set(values "below;above;many")
foreach(option IN LISTS options)
  if(NOT option MATCHES "^(--[a-z-]+) (INT|UINT|FLOAT):([-0-9.e]+)\\.\\.([-0-9.e]+)$")
    message(FATAL_ERROR "${help}\nExpected a range in '${option}', as Options::add_number gives it.")
  endif()
  set(name ${CMAKE_MATCH_1})
  set(low ${CMAKE_MATCH_3})
  set(high ${CMAKE_MATCH_4})
  set(expected "expected a whole number from ${low} to ${high}.")
  if(CMAKE_MATCH_2 STREQUAL "FLOAT")
    set(expected "expected a number from ${low} to ${high}.")
  endif()
  set(below 0)
  if(NOT low GREATER 0)
    string(REGEX REPLACE "^-?([0-9])" "-9\\1" below ${low})
  endif()
  set(above 1${high}0)
  set(many many)
  # The first option gets all three values, the others one each, since each run
  # loads LibTorch for a third of a second.
  foreach(value IN LISTS values)
    expect_refusal("${name}: ${${value}} was given; ${expected}" ${name} ${${value}})
  endforeach()
  if(values STREQUAL "above")
    set(values "below")
  else()
    set(values "above")
  endif()
endforeach()
