# `cmake --install`, and the package that find_package(tern) finds.
include(CMakePackageConfigHelpers)

if(NOT TERN_INSTALL)
  return()
endif()

set(tern_package ${CMAKE_INSTALL_LIBDIR}/cmake/tern)
set(tern_targets tern_fmt tern_torch tern_formats tern)
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
install(CODE "set(source \"${PROJECT_SOURCE_DIR}\")
  cmake_path(APPEND CMAKE_INSTALL_PREFIX \"${CMAKE_INSTALL_INCLUDEDIR}\" OUTPUT_VARIABLE include)
  set(has_vision ${TERN_VISION})")
install(SCRIPT ${CMAKE_CURRENT_LIST_DIR}/InstallHeaders.cmake)

configure_package_config_file(
  ${CMAKE_CURRENT_LIST_DIR}/ternConfig.cmake.in ${PROJECT_BINARY_DIR}/ternConfig.cmake
  INSTALL_DESTINATION ${tern_package}
  NO_CHECK_REQUIRED_COMPONENTS_MACRO)
write_basic_package_version_file(
  ${PROJECT_BINARY_DIR}/ternConfigVersion.cmake COMPATIBILITY SameMinorVersion)
install(FILES
  ${PROJECT_BINARY_DIR}/ternConfig.cmake
  ${PROJECT_BINARY_DIR}/ternConfigVersion.cmake
  DESTINATION ${tern_package})

# `cpack`, in the build folder: a Debian package. LibTorch is no part of it, nor
# do its packages lead there, since no distribution has this version; so the
# tools, which need to know where LibTorch lies, stay out.
if(PROJECT_IS_TOP_LEVEL)
  set(CPACK_GENERATOR DEB)
  set(CPACK_PACKAGE_CONTACT "The developers of Tern")
  set(CPACK_PACKAGING_INSTALL_PREFIX /usr)
  set(CPACK_DEB_COMPONENT_INSTALL ON)
  set(CPACK_COMPONENTS_ALL Unspecified)
  set(CPACK_COMPONENTS_GROUPING ALL_COMPONENTS_IN_ONE)
  set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
  set(CPACK_DEBIAN_PACKAGE_SECTION libdevel)
  set(packages libssl-dev zlib1g-dev)
  if(TERN_ARCHIVES)
    list(APPEND packages libarchive-dev libcurl4-openssl-dev librsvg2-dev pkg-config)
  endif()
  if(TERN_VISION)
    list(APPEND packages libopencv-dev libjpeg-dev libdeflate-dev)
  endif()
  list(JOIN packages ", " CPACK_DEBIAN_PACKAGE_DEPENDS)
  include(CPack)
endif()
