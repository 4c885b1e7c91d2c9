# Tests of the repository itself.
if(TERN_TESTS AND TARGET tern_convert)
  tern_test(tools/convert)
  add_dependencies(tools_convert_test tern_convert)
  tern_path_constant(tools_convert_test kTernConvert $<TARGET_FILE:tern_convert>)
endif()

if(TERN_TESTS AND TARGET tern_shard)
  tern_test(tools/shard LIBRARIES tern_vision opencv_imgcodecs)
  add_dependencies(tools_shard_test tern_shard)
  tern_path_constant(tools_shard_test kTernShard $<TARGET_FILE:tern_shard>)
endif()

if(TERN_TESTS AND TARGET tern_weights)
  tern_test(tools/weights LIBRARIES tern_vision)
  add_dependencies(tools_weights_test tern_weights)
  tern_path_constant(tools_weights_test kTernWeights $<TARGET_FILE:tern_weights>)
endif()

# Checks allowed includes and cycles between headers, and prints the folders'
# sizes.
if(TERN_PYTHON)
  add_test(NAME house COMMAND ${TERN_PYTHON} ${CMAKE_CURRENT_LIST_DIR}/house.py ${PROJECT_SOURCE_DIR})
endif()

# The lines in which `./dev mutate` plants faults exist.
if(TERN_PYTHON)
  add_test(NAME mutants COMMAND ${TERN_PYTHON} ${PROJECT_SOURCE_DIR}/tools/mutate.py --check)
endif()

# ./dev messages finds the messages of the sources, and they are well-formed.
if(TERN_PYTHON)
  add_test(NAME tools/messages COMMAND ${TERN_PYTHON} ${CMAKE_CURRENT_LIST_DIR}/tools/messages_test.py)
  set_tests_properties(tools/messages PROPERTIES ENVIRONMENT PYTHONDONTWRITEBYTECODE=1)
endif()

# ./dev without a network: its messages, and its handling of a failed set-up.
if(NOT CMAKE_CROSSCOMPILING)
  add_test(NAME dev COMMAND bash ${CMAKE_CURRENT_LIST_DIR}/tools/dev_test.sh)
  set_tests_properties(dev PROPERTIES TIMEOUT 300)
endif()

# No target builds this file: it tells editors how to compile sources that this
# build leaves out.
add_library(tern_left_out_files OBJECT EXCLUDE_FROM_ALL fuzz/main.cpp install/images.cpp install/line.cpp)
if(TERN_DISTRIBUTED)
  target_sources(tern_left_out_files PRIVATE ../callbacks/without_distributed.cpp)
endif()
target_link_libraries(tern_left_out_files PRIVATE tern tern_warnings $<TARGET_NAME_IF_EXISTS:tern_vision>)
if(CMAKE_EXPORT_COMPILE_COMMANDS AND TERN_VISION AND TERN_EXAMPLES AND TARGET tern_nccl AND json)
  add_test(NAME compile_commands COMMAND ${CMAKE_COMMAND} -DROOT=${PROJECT_SOURCE_DIR}
    -DBUILD=${CMAKE_BINARY_DIR} -P ${CMAKE_CURRENT_LIST_DIR}/compile_commands.cmake)
endif()

if(TERN_SANITIZE)
  set(sanitize_flags -fsanitize=${TERN_SANITIZE})
endif()
# An external project finds the installed package, builds and runs. It uses GCC,
# whatever compiled Tern, unless it needs the same sanitizers.
find_program(TERN_OUTSIDE_COMPILER g++ DOC "Compiles the outside project of the test install")
if(TERN_SANITIZE OR CMAKE_CROSSCOMPILING OR NOT TERN_OUTSIDE_COMPILER)
  set(outside_compiler ${CMAKE_CXX_COMPILER})
else()
  set(outside_compiler ${TERN_OUTSIDE_COMPILER})
endif()
if(CMAKE_CROSSCOMPILING)
  set(toolchain -DTOOLCHAIN=-DCMAKE_TOOLCHAIN_FILE=${CMAKE_TOOLCHAIN_FILE})
endif()
foreach(tool convert shard weights)
  if(TARGET tern_${tool})
    list(APPEND tools tern-${tool})
  endif()
endforeach()
add_test(NAME install
  COMMAND ${CMAKE_COMMAND}
    -DBUILD=${PROJECT_BINARY_DIR}
    -DSOURCE=${CMAKE_CURRENT_LIST_DIR}/install
    -DGENERATOR=${CMAKE_GENERATOR}
    -DCXX=${outside_compiler}
    -DCXX_FLAGS=${sanitize_flags}
    "-DLAUNCHER=${CMAKE_CXX_COMPILER_LAUNCHER}"
    -DLIBDIR=${CMAKE_INSTALL_LIBDIR}
    -DTORCH=${Torch_DIR}
    -DCUDA=${TERN_CUDA}
    -DVISION=${TERN_VISION}
    ${toolchain}
    "-DTOOLS=${tools}"
    -P ${CMAKE_CURRENT_LIST_DIR}/install/run.cmake)
set_tests_properties(install PROPERTIES LABELS "install;long" TIMEOUT 600)

# A project that includes Tern by FetchContent or add_subdirectory is generated;
# its link line contains Tern's libraries and LibTorch's. The slow test also
# builds and runs it.
set(subdirectory ${CMAKE_COMMAND}
  -DTERN=${PROJECT_SOURCE_DIR}
  -DCXX=${CMAKE_CXX_COMPILER}
  -DTORCH=${Torch_DIR}
  -DVISION=${TERN_VISION}
  "-DLAUNCHER=${CMAKE_CXX_COMPILER_LAUNCHER}"
  ${toolchain})
set(script ${CMAKE_CURRENT_LIST_DIR}/install/subdirectory/run.cmake)
add_test(NAME subdirectory
  COMMAND ${subdirectory} -DBUILD=${PROJECT_BINARY_DIR}/tests/subdirectory -P ${script})
set_tests_properties(subdirectory PROPERTIES TIMEOUT ${TERN_TEST_TIMEOUT})
add_test(NAME subdirectory/run
  COMMAND ${subdirectory} -DBUILD=${PROJECT_BINARY_DIR}/tests/subdirectory-run -DRUN=ON -P ${script})
set_tests_properties(subdirectory/run PROPERTIES LABELS slow TIMEOUT 3600)

# The Debian package on a bare Debian 12; needs root and debootstrap.
if(CMAKE_SYSTEM_PROCESSOR STREQUAL CMAKE_HOST_SYSTEM_PROCESSOR)
  add_test(NAME install/deb COMMAND bash ${CMAKE_CURRENT_LIST_DIR}/install/deb.sh
    ${PROJECT_BINARY_DIR} ${TORCH_INSTALL_PREFIX} ${PROJECT_BINARY_DIR}/tests/bare)
  set_tests_properties(install/deb PROPERTIES LABELS slow TIMEOUT 3600 SKIP_RETURN_CODE 77)
endif()

# The Conan recipe, if Conan is installed.
find_program(TERN_CONAN conan DOC "Conan 2, for the test install/conan")
add_test(NAME install/conan COMMAND ${CMAKE_COMMAND} -DCONAN=${TERN_CONAN} -DROOT=${PROJECT_SOURCE_DIR}
  -DHOME=${PROJECT_BINARY_DIR}/tests/conan -DTORCH=${Torch_DIR} -DVISION=${TERN_VISION}
  "-DLAUNCHER=${CMAKE_CXX_COMPILER_LAUNCHER}" -P ${CMAKE_CURRENT_LIST_DIR}/install/conan/run.cmake)
set_tests_properties(install/conan PROPERTIES LABELS slow TIMEOUT 3600
  SKIP_REGULAR_EXPRESSION "SKIPPED: ")

# The C++ blocks of the documents, compiled like tern_documents.cpp: with only
# tern.h in the precompiled header, so that a block shows which other headers it
# includes.
if(TERN_TESTS AND TERN_VISION AND TERN_PYTHON AND NOT TERN_SANITIZE AND CMAKE_EXPORT_COMPILE_COMMANDS)
  tern_precompiled_header(tern_documents tern_vision HEADERS <tern/tern.h>)
  add_test(NAME documents COMMAND ${TERN_PYTHON} ${CMAKE_CURRENT_LIST_DIR}/documents.py
    ${PROJECT_BINARY_DIR} ${PROJECT_SOURCE_DIR})
  set_tests_properties(documents PROPERTIES LABELS long TIMEOUT 600)
  # Blocks that are programs also run.
  set(programs ${PROJECT_BINARY_DIR}/generated/document_programs.cpp)
  file(GLOB pages CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/docs/*.md)
  add_custom_command(OUTPUT ${programs} DEPENDS ${CMAKE_CURRENT_LIST_DIR}/documents.py ${pages}
    COMMAND ${TERN_PYTHON} ${CMAKE_CURRENT_LIST_DIR}/documents.py --programs ${programs} ${PROJECT_SOURCE_DIR})
  add_executable(document_programs ${programs})
  target_link_libraries(document_programs PRIVATE tern_vision)
  target_precompile_headers(document_programs REUSE_FROM tern_documents)
  add_test(NAME documents/programs COMMAND document_programs)
  set_tests_properties(documents/programs PROPERTIES ENVIRONMENT OMP_NUM_THREADS=1
    WORKING_DIRECTORY ${PROJECT_BINARY_DIR}/generated)
endif()

# The site. The test looks for the tools that build it when it runs, because ./dev
# test installs them. Chromium then opens the site.
if(TERN_TESTS AND TERN_PYTHON AND TARGET mnist AND TARGET ddp)
  add_test(NAME site COMMAND ${TERN_PYTHON} ${CMAKE_CURRENT_LIST_DIR}/site.py
    ${PROJECT_SOURCE_DIR} ${PROJECT_BINARY_DIR}/pages ${PROJECT_BINARY_DIR}/tests/site)
  set_tests_properties(site PROPERTIES FIXTURES_SETUP site LABELS long SKIP_RETURN_CODE 77
    TIMEOUT ${TERN_TEST_TIMEOUT} ENVIRONMENT PYTHONDONTWRITEBYTECODE=1)
  add_test(NAME site_browser COMMAND ${TERN_PYTHON} ${CMAKE_CURRENT_LIST_DIR}/site_browser.py ${PROJECT_BINARY_DIR}/tests/site)
  set_tests_properties(site_browser PROPERTIES FIXTURES_REQUIRED site LABELS long SKIP_RETURN_CODE 77
    TIMEOUT ${TERN_TEST_TIMEOUT} ENVIRONMENT PYTHONDONTWRITEBYTECODE=1)
endif()

# How examples become notebooks, and that docs/notebooks matches the current
# sources.
if(TERN_PYTHON)
  add_test(NAME tools/notebook COMMAND ${TERN_PYTHON} ${CMAKE_CURRENT_LIST_DIR}/tools/notebook_test.py)
  add_test(NAME notebooks COMMAND ${TERN_PYTHON} ${CMAKE_CURRENT_LIST_DIR}/notebooks.py ${PROJECT_SOURCE_DIR})
  set_tests_properties(tools/notebook notebooks PROPERTIES ENVIRONMENT PYTHONDONTWRITEBYTECODE=1)
endif()

# The tables of metrics and options, versions, and the promises of CONTRIBUTING.md.
if(TERN_PYTHON)
  add_test(NAME tables COMMAND ${TERN_PYTHON} ${CMAKE_CURRENT_LIST_DIR}/tables.py ${PROJECT_SOURCE_DIR})
  add_test(NAME project COMMAND ${TERN_PYTHON} ${CMAKE_CURRENT_LIST_DIR}/project.py ${PROJECT_SOURCE_DIR})
endif()

# Likely mistakes, and the errors of GCC and Clang for them.
if(TERN_TESTS AND TERN_PYTHON AND CMAKE_EXPORT_COMPILE_COMMANDS)
  add_test(NAME mistakes COMMAND ${TERN_PYTHON} ${CMAKE_CURRENT_LIST_DIR}/mistakes.py
    ${PROJECT_BINARY_DIR} g++ clang++-16)
  set_tests_properties(mistakes PROPERTIES LABELS long TIMEOUT 600)
endif()

# How ./dev gpu runs comparisons and writes its page; needs no GPU.
if(TERN_TESTS AND TERN_PYTHON)
  add_test(NAME bench/gpu_page COMMAND ${TERN_PYTHON} ${CMAKE_CURRENT_LIST_DIR}/bench/peers/gpu_test.py)
  set_tests_properties(bench/gpu_page PROPERTIES ENVIRONMENT PYTHONDONTWRITEBYTECODE=1)
endif()
