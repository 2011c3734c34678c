# Front libraries: shared libraries that stand before a stock one of the same SONAME.
find_package(Python3 REQUIRED COMPONENTS Interpreter)
include(GNUInstallDirs)
set(SHIFT_FRONT_TOOLS ${CMAKE_CURRENT_LIST_DIR}/front)

# Where the files of the machine lie that the fronts are built for: a cross compiler's are below a folder of their
# own, while programs find them there without it.
set(SHIFT_STOCK_ROOT "")
if(CMAKE_CROSSCOMPILING)
  list(GET CMAKE_FIND_ROOT_PATH 0 SHIFT_STOCK_ROOT)
endif()

# shift_find_stock(RESULT FILE): where the distribution keeps FILE at run time; empty if it is not installed.
function(shift_find_stock result file)
  set(found "")
  foreach(dir /usr/lib/${CMAKE_LIBRARY_ARCHITECTURE} /usr/lib64 /usr/lib)
    if(NOT found AND EXISTS ${SHIFT_STOCK_ROOT}${dir}/${file})
      set(found ${dir}/${file})
    endif()
  endforeach()
  set(${result} "${found}" PARENT_SCOPE)
endfunction()

# shift_find_front_of(FOUND NAME HEADER PACKAGES): finds what a front of lib<NAME>.so.1 needs; if something is
# missing, it says so and sets FOUND to false. It sets the cache entries SHIFT_STOCK_LIB<NAME>, the path of the
# stock library, and <NAME>_include, the folder of its HEADER; Debian has both in PACKAGES.
function(shift_find_front_of found name header packages)
  string(TOUPPER SHIFT_STOCK_LIB${name} stock)
  find_path(${name}_include ${header})
  shift_find_stock(default_stock lib${name}.so.1)
  set(${stock} "${default_stock}" CACHE FILEPATH
    "Where the stock lib${name}.so.1 lies at run time; empty: no front of it")
  if(${name}_include AND ${stock})
    set(${found} TRUE PARENT_SCOPE)
    return()
  endif()
  message(STATUS "no front of lib${name}: the library or its header is not here (Debian: ${packages})")
  set(${found} FALSE PARENT_SCOPE)
endfunction()

# shift_front_symbols(TARGET OUT FAMILY STOCK SYMBOLS): runs gen_symbols.py, which writes its files into OUT, on
# the symbols of STOCK and the list SYMBOLS.
function(shift_front_symbols target out family stock symbols)
  set(made front.map trampolines.S trampolines.inc leads.inc data.inc)
  list(TRANSFORM made PREPEND ${out}/)
  add_custom_command(OUTPUT ${made}
    COMMAND Python3::Interpreter ${SHIFT_FRONT_TOOLS}/gen_symbols.py --family ${family} --nm ${CMAKE_NM}
      --stock ${stock} --symbols ${symbols} --out ${out}
    DEPENDS ${SHIFT_FRONT_TOOLS}/gen_symbols.py ${symbols} ${stock}
    VERBATIM)
  add_custom_target(${target} DEPENDS ${made})
endfunction()

# shift_front(TARGET NAME OUTPUT_DIR STOCK MAP sources...): builds lib<NAME>.so.1 in OUTPUT_DIR, a front of STOCK
# that exports what the version script MAP names.
function(shift_front target name output_dir stock map)
  # The path of the stock library goes into DT_NEEDED. The dynamic linker does not match an entry with a slash
  # against the SONAMEs of loaded objects, so two objects of one SONAME can be loaded in one process. The entry
  # comes from an empty stub library whose SONAME is that path.
  set(stub ${target}_stub)
  file(WRITE ${CMAKE_CURRENT_BINARY_DIR}/${stub}.c "")
  add_library(${stub} SHARED ${CMAKE_CURRENT_BINARY_DIR}/${stub}.c)
  set_target_properties(${stub} PROPERTIES NO_SONAME ON
    LIBRARY_OUTPUT_DIRECTORY ${CMAKE_CURRENT_BINARY_DIR})
  target_link_options(${stub} PRIVATE -nostdlib -Wl,-soname,${stock})

  add_library(${target} SHARED ${ARGN})
  add_dependencies(${target} ${stub})
  set_target_properties(${target} PROPERTIES
    OUTPUT_NAME ${name} VERSION 1 SOVERSION 1 SKIP_BUILD_RPATH ON
    LIBRARY_OUTPUT_DIRECTORY ${output_dir}
    LINK_DEPENDS "${map};$<TARGET_FILE:${stub}>")
  target_link_libraries(${target} PRIVATE shift_options)
  target_link_options(${target} PRIVATE
    -Wl,--version-script=${map}
    -Wl,--no-as-needed $<TARGET_FILE:${stub}> -Wl,--as-needed)
  shift_guest(${target})
endfunction()

# shift_front_install(TARGET): installs a front outside the default search path; shift-run or a package's
# ld.so.conf entry leads there. The name link is installed, too, because some programs try libibverbs.so first.
# The target `fronts` builds all fronts.
function(shift_front_install target)
  if(NOT TARGET fronts)
    add_custom_target(fronts)
  endif()
  add_dependencies(fronts ${target})
  install(TARGETS ${target} LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR}/shift
    COMPONENT shift-rdma NAMELINK_COMPONENT shift-rdma)
endfunction()
