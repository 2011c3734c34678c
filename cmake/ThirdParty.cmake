# Installs the licence, and the notices of others' code that is compiled or linked into the installed files. The
# notices are those of the build machine's packages: they are of the very versions that the files contain.
include(GNUInstallDirs)
set(SHIFT_COPYRIGHTS "${SHIFT_STOCK_ROOT}/usr/share/doc" CACHE PATH
  "Folder with PACKAGE/copyright for each package whose code gets into the installed files")

# shift_notice(NAME FOLDER PACKAGE): installs FOLDER/PACKAGE/copyright as third-party/NAME.
function(shift_notice name folder package)
  set(file ${folder}/${package}/copyright)
  if(EXISTS ${file})
    get_filename_component(file ${file} REALPATH)
    install(FILES ${file} DESTINATION ${CMAKE_INSTALL_DOCDIR}/third-party RENAME ${name})
  else()
    install(CODE "message(FATAL_ERROR \"no ${file}: what is installed contains ${name}, whose notice must go with
      it. Install the package, or set SHIFT_COPYRIGHTS to a folder with this file.\")")
  endif()
endfunction()

install(FILES ${CMAKE_SOURCE_DIR}/LICENSE DESTINATION ${CMAKE_INSTALL_DOCDIR})
shift_notice(cli11 ${SHIFT_COPYRIGHTS} libcli11-dev)
shift_notice(libsodium ${SHIFT_COPYRIGHTS} libsodium-dev)
shift_notice(nlohmann-json ${SHIFT_COPYRIGHTS} nlohmann-json3-dev)
shift_notice(rdma-core ${SHIFT_COPYRIGHTS} libibverbs-dev)  # functions in its headers
shift_notice(zlib ${SHIFT_COPYRIGHTS} zlib1g-dev)

# The C++ run-time is of the compiler's package, which a cross compiler has outside the foreign folders.
execute_process(COMMAND ${CMAKE_CXX_COMPILER} -print-file-name=libstdc++.a
  OUTPUT_VARIABLE runtime OUTPUT_STRIP_TRAILING_WHITESPACE)
string(REGEX REPLACE "^.*/([0-9]+)/libstdc.*$" "\\1" runtime "${runtime}")
if(CMAKE_CROSSCOMPILING)
  string(REPLACE aarch64 arm64 debian_name ${CMAKE_SYSTEM_PROCESSOR})
  shift_notice(libstdc++ /usr/share/doc libstdc++-${runtime}-dev-${debian_name}-cross)
else()
  shift_notice(libstdc++ ${SHIFT_COPYRIGHTS} libstdc++-${runtime}-dev)
endif()
