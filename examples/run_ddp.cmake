# Trains with examples/ddp, in one process or in several that torchrun starts. The
# checkpoint folder is removed first: resuming a complete run would train nothing.
# Fails unless the table has a row for every epoch and the accuracy is at least 0.9.
#
# cmake -DPROGRAM=ddp "-DSTART=torchrun --nproc-per-node 2" -DPROCESSES=2
#       -DOPTIONS=--shard-optimizer -P run_ddp.cmake
set(epochs 2)
separate_arguments(start UNIX_COMMAND "${START} $ENV{TERN_EMULATOR}")
separate_arguments(options UNIX_COMMAND "${OPTIONS}")
file(REMOVE_RECURSE checkpoints)
execute_process(
  COMMAND ${start} ${PROGRAM} --epochs ${epochs} --folder checkpoints ${options}
  OUTPUT_VARIABLE output ECHO_OUTPUT_VARIABLE COMMAND_ERROR_IS_FATAL ANY)

# epoch  train_loss  valid_loss  accuracy  time
string(REGEX MATCHALL "\n[0-9]+ +[0-9.]+ +[0-9.]+ +[0-9.]+ +[0-9:]+" rows "${output}")
list(LENGTH rows trained)
if(NOT trained EQUAL epochs)
  message(FATAL_ERROR "The table has ${trained} rows of numbers; expected ${epochs}, one for each epoch.")
endif()
if(NOT output MATCHES "${PROCESSES} processes: validation loss [0-9.]+, accuracy ([0-9.]+)")
  message(FATAL_ERROR "No accuracy was printed for ${PROCESSES} processes.")
endif()
if(CMAKE_MATCH_1 LESS 0.9)
  message(FATAL_ERROR "The accuracy is ${CMAKE_MATCH_1}; expected 0.9 or more.")
endif()
