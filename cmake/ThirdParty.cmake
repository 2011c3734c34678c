# Installs the licence, and the notices of others' code that is compiled or linked into the installed files. The
# notices are those of the build machine's packages: they are of the very versions that the files contain.
include(GNUInstallDirs)
set(SHIFT_COPYRIGHTS "${SHIFT_STOCK_ROOT}/usr/share/doc" CACHE PATH
  "Folder with PACKAGE/copyright for each package whose code gets into the installed files")

# The components are what packages hold. Each has its own folder of documents, since a file can belong to one
# package only.
set(SHIFT_COMPONENTS shift-rdma shift-rdma-system cxemu)
foreach(component ${SHIFT_COMPONENTS})
  set(SHIFT_DOCUMENTS_${component} ${CMAKE_INSTALL_DATAROOTDIR}/doc/${component})
  file(WRITE ${CMAKE_BINARY_DIR}/third-party/${component} "")
endforeach()

# shift_notice(NAME FOLDER PACKAGE component...): installs FOLDER/PACKAGE/copyright as third-party/NAME with each
# of the components, and writes PACKAGE into the build's third-party/COMPONENT, for packages.
function(shift_notice name folder package)
  set(file ${folder}/${package}/copyright)
  set(is_there FALSE)
  if(EXISTS ${file})
    set(is_there TRUE)
    get_filename_component(file ${file} REALPATH)
  endif()
  foreach(component ${ARGN})
    file(APPEND ${CMAKE_BINARY_DIR}/third-party/${component} "${package}\n")
    if(is_there)
      install(FILES ${file} DESTINATION ${SHIFT_DOCUMENTS_${component}}/third-party RENAME ${name}
        COMPONENT ${component})
    else()
      install(CODE "message(FATAL_ERROR \"no ${file}: what is installed contains ${name}, whose notice must go
        with it. Install the package, or set SHIFT_COPYRIGHTS to a folder with this file.\")"
        COMPONENT ${component})
    endif()
  endforeach()
endfunction()

foreach(component ${SHIFT_COMPONENTS})
  install(FILES ${CMAKE_SOURCE_DIR}/LICENSE DESTINATION ${SHIFT_DOCUMENTS_${component}} COMPONENT ${component})
endforeach()
shift_notice(cli11 ${SHIFT_COPYRIGHTS} libcli11-dev ${SHIFT_COMPONENTS})
if(TARGET shift_hiredis)
  shift_notice(hiredis ${SHIFT_COPYRIGHTS} libhiredis-dev shift-rdma)
endif()
shift_notice(libsodium ${SHIFT_COPYRIGHTS} libsodium-dev shift-rdma shift-rdma-system)
shift_notice(nlohmann-json ${SHIFT_COPYRIGHTS} nlohmann-json3-dev shift-rdma cxemu)
# Functions in its headers.
shift_notice(rdma-core ${SHIFT_COPYRIGHTS} libibverbs-dev ${SHIFT_COMPONENTS})
shift_notice(zlib ${SHIFT_COPYRIGHTS} zlib1g-dev cxemu)

# The C++ run-time is of the compiler's package, which a cross compiler has outside the foreign folders.
execute_process(COMMAND ${CMAKE_CXX_COMPILER} -print-file-name=libstdc++.a
  OUTPUT_VARIABLE runtime OUTPUT_STRIP_TRAILING_WHITESPACE)
string(REGEX REPLACE "^.*/([0-9]+)/libstdc.*$" "\\1" runtime "${runtime}")
if(CMAKE_CROSSCOMPILING)
  string(REPLACE aarch64 arm64 debian_name ${CMAKE_SYSTEM_PROCESSOR})
  shift_notice(libstdc++ /usr/share/doc libstdc++-${runtime}-dev-${debian_name}-cross ${SHIFT_COMPONENTS})
else()
  shift_notice(libstdc++ ${SHIFT_COPYRIGHTS} libstdc++-${runtime}-dev ${SHIFT_COMPONENTS})
endif()
