# Trains both matting networks and predicts with one of them, in one folder and with
# the programs' default file names, as docs/matting.md does. MNIST's threes serve as
# foregrounds, alphas and backgrounds. Frames in several folders have the same name.
#
# cmake -DPROGRAMS=build/examples -P run_matting.cmake
separate_arguments(emulator UNIX_COMMAND "$ENV{TERN_EMULATOR}")
file(GLOB left LIST_DIRECTORIES TRUE ${CMAKE_CURRENT_BINARY_DIR}/*)
if(left)
  file(REMOVE_RECURSE ${left})
endif()
execute_process(COMMAND ${emulator} ${PROGRAMS}/find_digits OUTPUT_VARIABLE digits COMMAND_ERROR_IS_FATAL ANY)
file(GLOB images ${digits}/valid/3/*.png)
list(SUBLIST images 0 10 images)
list(GET images 0 first)
foreach(folder pairs/pha pairs/fgr backgrounds)
  file(COPY ${images} DESTINATION ${folder})
endforeach()
foreach(frame me.png monday/me.png tuesday/me.png)
  configure_file(${first} ${CMAKE_CURRENT_BINARY_DIR}/frames/${frame} COPYONLY)
endforeach()

set(training --dataset pairs --backgrounds backgrounds --model-backbone mobilenetv2 --epoch-end 1
  --batch-size 4 --num-workers 0)
execute_process(COMMAND ${emulator} ${PROGRAMS}/matting_base ${training} --size 64 COMMAND_ERROR_IS_FATAL ANY)
execute_process(
  COMMAND ${emulator} ${PROGRAMS}/matting_refine ${training} --size 128 --model-refine-sample-pixels 512
    --model-last-checkpoint checkpoint/base/base.safetensors
  COMMAND_ERROR_IS_FATAL ANY)
execute_process(
  COMMAND ${emulator} ${PROGRAMS}/matting_predict --model-checkpoint checkpoint/refine/refine.safetensors
    --images-src frames/ --images-bgr ${first} --output-dir out
  COMMAND_ERROR_IS_FATAL ANY)
file(GLOB_RECURSE written RELATIVE ${CMAKE_CURRENT_BINARY_DIR}/out out/*)
set(expected "")
foreach(kind com fgr pha)
  list(APPEND expected ${kind}/me.png ${kind}/monday/me.png ${kind}/tuesday/me.png)
endforeach()
if(NOT written STREQUAL expected)
  message(FATAL_ERROR "matting_predict has written ${written}; expected ${expected}.")
endif()

# Writes the folder of frames as a video, then predicts this video with other options.
set(predict ${emulator} ${PROGRAMS}/matting_predict --model-checkpoint checkpoint/refine/refine.safetensors
  --device cpu --images-bgr ${first})
execute_process(
  COMMAND ${predict} --images-src frames --num-workers 2 --output-format video --output-types fgr --output-dir video
  COMMAND_ERROR_IS_FATAL ANY)
execute_process(
  COMMAND ${predict} --video-src video/fgr.mp4 --video-target-bgr video/fgr.mp4 --amp --video-resize 128 96 --output-types com pha err ref
    --model-refine-mode thresholding --model-refine-threshold 0.01 --model-backbone-scale 0.5 --output-dir resized
  COMMAND_ERROR_IS_FATAL ANY)
execute_process(
  COMMAND ${predict} --video-src resized/com.mp4 --output-types err ref --output-format image_sequences
    --output-dir resized
  COMMAND_ERROR_IS_FATAL ANY)
file(GLOB_RECURSE written RELATIVE ${CMAKE_CURRENT_BINARY_DIR}/resized resized/*)
set(expected com.mp4)
foreach(kind err ref)
  list(APPEND expected ${kind}.mp4 ${kind}/00000.png ${kind}/00001.png ${kind}/00002.png)
endforeach()
list(APPEND expected pha.mp4)
list(SORT expected)
list(SORT written)
if(NOT written STREQUAL expected)
  message(FATAL_ERROR "matting_predict has written ${written}; expected ${expected}.")
endif()
# The option changes the result.
foreach(pixels 16 256)
  execute_process(
    COMMAND ${predict} --images-src frames --model-refine-mode sampling --model-refine-sample-pixels ${pixels}
      --output-types ref --output-dir refined${pixels}
    COMMAND_ERROR_IS_FATAL ANY)
  file(SHA256 refined${pixels}/ref/me.png refined${pixels})
endforeach()
if(refined16 STREQUAL refined256)
  message(FATAL_ERROR "--model-refine-sample-pixels 16 and 256 refine the same pixels.")
endif()
execute_process(
  COMMAND ${predict} --images-src frames --model-refine-kernel-size 1 --output-dir again
  RESULT_VARIABLE code ERROR_VARIABLE error)
if(code EQUAL 0 OR NOT error MATCHES "kernel_size 1")
  message(FATAL_ERROR "Weights of another kernel size: exit code ${code}\n${error}")
endif()

# me.png and me.PNG would both be written to out/com/me.png.
configure_file(${first} ${CMAKE_CURRENT_BINARY_DIR}/frames/me.PNG COPYONLY)
execute_process(
  COMMAND ${emulator} ${PROGRAMS}/matting_predict --model-checkpoint checkpoint/refine/refine.safetensors
    --images-src frames --images-bgr ${first} --output-dir again
  RESULT_VARIABLE code ERROR_VARIABLE error)
if(code EQUAL 0 OR NOT error MATCHES "would both be written as me.png" OR EXISTS ${CMAKE_CURRENT_BINARY_DIR}/again)
  message(FATAL_ERROR "Two frames with one name: exit code ${code}\n${error}")
endif()
