# `cmake --install`, and the package that find_package(tern) finds.
include(CMakePackageConfigHelpers)

if(NOT TERN_INSTALL)
  return()
endif()

# Two packages: kernels for GPUs need a LibTorch with CUDA; the other takes any.
set(tern_package_name tern)
set(tern_other_package tern-cuda)
set(tern_summary "fastai's way of training for C++, on LibTorch, for CPUs")
if(TERN_CUDA)
  set(tern_package_name tern-cuda)
  set(tern_other_package tern)
  set(tern_summary "fastai's way of training for C++, on LibTorch, for CPUs and GPUs")
endif()
set(tern_package ${CMAKE_INSTALL_LIBDIR}/cmake/tern)
set(tern_targets tern_fmt tern_torch tern_formats tern)
if(TERN_CUDA)
  list(APPEND tern_targets tern_torch_cuda)
endif()
if(TERN_VISION)
  list(APPEND tern_targets tern_vision)
endif()

install(TARGETS ${tern_targets} EXPORT ternTargets
  ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR}
  LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR})
foreach(module tern_cuda_graph tern_nccl)
  if(TARGET ${module})
    install(TARGETS ${module} LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR})
  endif()
endforeach()
install(EXPORT ternTargets NAMESPACE tern:: DESTINATION ${tern_package})
# copyright is the name that Debian asks for.
set(tern_doc ${CMAKE_INSTALL_DATADIR}/doc/${tern_package_name})
install(FILES LICENSE NOTICE DESTINATION ${tern_doc})
install(FILES NOTICE DESTINATION ${tern_doc} RENAME copyright)
install(CODE "set(source \"${PROJECT_SOURCE_DIR}\")
  cmake_path(APPEND CMAKE_INSTALL_PREFIX \"${CMAKE_INSTALL_INCLUDEDIR}\" OUTPUT_VARIABLE include)
  set(has_vision ${TERN_VISION})")
install(SCRIPT ${CMAKE_CURRENT_LIST_DIR}/InstallHeaders.cmake)

string(REGEX MATCH "^[0-9]+[.][0-9]+" tern_torch_minor ${Torch_VERSION})
configure_package_config_file(
  ${CMAKE_CURRENT_LIST_DIR}/ternConfig.cmake.in ${PROJECT_BINARY_DIR}/ternConfig.cmake
  INSTALL_DESTINATION ${tern_package}
  NO_CHECK_REQUIRED_COMPONENTS_MACRO)
write_basic_package_version_file(
  ${PROJECT_BINARY_DIR}/ternConfigVersion.cmake COMPATIBILITY SameMinorVersion)
install(FILES
  ${PROJECT_BINARY_DIR}/ternConfig.cmake
  ${PROJECT_BINARY_DIR}/ternConfigVersion.cmake
  ${CMAKE_CURRENT_LIST_DIR}/TernTorch.cmake
  DESTINATION ${tern_package})

# `cpack`, in the build folder: a Debian package. LibTorch is no part of it, nor
# do its packages lead there, since no distribution has this version; so the
# tools, which need to know where LibTorch lies, stay out.
if(PROJECT_IS_TOP_LEVEL)
  set(CPACK_GENERATOR DEB)
  set(CPACK_DEBIAN_PACKAGE_NAME ${tern_package_name})
  set(CPACK_DEBIAN_PACKAGE_CONFLICTS ${tern_other_package})
  set(CPACK_DEBIAN_PACKAGE_REPLACES ${tern_other_package})
  set(CPACK_PACKAGE_DESCRIPTION_SUMMARY "${tern_summary}")
  set(CPACK_DEBIAN_PACKAGE_DESCRIPTION "${tern_summary}
Headers, static libraries and the CMake package tern, built with LibTorch
${Torch_VERSION}, which is no part of it: pip install torch==${Torch_VERSION}.")
  set(CPACK_PACKAGE_CONTACT "The developers of Tern")
  set(CPACK_PACKAGING_INSTALL_PREFIX /usr)
  set(CPACK_DEB_COMPONENT_INSTALL ON)
  set(CPACK_COMPONENTS_ALL Unspecified)
  set(CPACK_COMPONENTS_GROUPING ALL_COMPONENTS_IN_ONE)
  set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
  set(CPACK_DEBIAN_PACKAGE_SECTION libdevel)
  set(packages libssl-dev zlib1g-dev)
  if(TERN_ARCHIVES)
    list(APPEND packages libarchive-dev libcurl4-openssl-dev libpugixml-dev librsvg2-dev pkg-config)
  endif()
  if(TERN_VISION)
    list(APPEND packages libopencv-dev libjpeg-dev libdeflate-dev)
  endif()
  list(JOIN packages ", " CPACK_DEBIAN_PACKAGE_DEPENDS)
  include(CPack)
endif()
