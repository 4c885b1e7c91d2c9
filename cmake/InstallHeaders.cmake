# Installs the public headers: those that tern.h or one of `roots` leads to. The
# others stay in the tree. Run by `cmake --install`, which sets `source`,
# `include`, `has_vision`. The site has a page for each of them that is not
# "Private to Tern".
cmake_policy(VERSION 3.25)
set(roots tern.h learner/autocast.h learner/grad_scaler.h data/download/download.h data/formats/weights/safetensors.h
  learner/report/html_page.h learner/distributed/sync_batch_norm.h vision/matting/matting_predict.h)
set(public "")
while(roots)
  list(POP_FRONT roots header)
  if(header IN_LIST public OR (header MATCHES "^vision/" AND NOT has_vision))
    continue()
  endif()
  list(APPEND public ${header})
  cmake_path(GET header PARENT_PATH folder)
  file(INSTALL ${source}/${header} DESTINATION ${include}/tern/${folder})
  file(STRINGS ${source}/${header} lines REGEX "^#include [<\"]tern/")
  list(TRANSFORM lines REPLACE "^#include [<\"]tern/([^\">]+)[\">].*" "\\1")
  list(APPEND roots ${lines})
endwhile()
