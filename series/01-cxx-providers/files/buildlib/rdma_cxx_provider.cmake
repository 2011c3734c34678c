# SPDX-License-Identifier: (GPL-2.0 OR Linux-OpenIB)
# For providers that are written in C++. This file is read only where one of
# them is built, since reading it demands a C++ compiler.

if (CMAKE_VERSION VERSION_LESS "3.18")
  message(FATAL_ERROR "providers in C++ need CMake 3.18, this is ${CMAKE_VERSION}")
endif()
if (NOT SIZEOF_LONG EQUAL 8)
  message(FATAL_ERROR "providers in C++ are for 64-bit architectures only")
endif()

enable_language(CXX)
include(CheckCXXSourceCompiles)

option(RDMA_CXX_STATIC_RUNTIME "Link the C++ run-time into providers that are written in C++" ON)

# RDMA_BuildType() has set up the build types before there was a second
# language. Where nobody has chosen other flags, C++ is compiled as C is.
# CMake's own choice must not stay in the cache, since RDMA_BuildType() would
# meet it without its default when CMake runs again.
foreach(type DEBUG RELEASE RELWITHDEBINFO MINSIZEREL)
  set(flags CMAKE_CXX_FLAGS_${type})
  string(STRIP "${${flags}_INIT}" default)
  if (NOT ${flags} OR "${${flags}}" STREQUAL "${default}")
    unset(${flags} CACHE)
    set(${flags} "${CMAKE_C_FLAGS_${type}}")
  endif()
endforeach()

set(rdma_flags_before "${CMAKE_REQUIRED_FLAGS}")
set(CMAKE_REQUIRED_FLAGS "${CMAKE_REQUIRED_FLAGS} -std=gnu++20")
check_cxx_source_compiles("
#include <bit>
#include <compare>
#include <concepts>
#include <optional>
#include <span>
struct version {
  int major, minor;
  auto operator<=>(const version &) const = default;
};
template <std::integral T>
constexpr T twice(T x) { return x << 1; }
int main() {
  const version one{.major = 1, .minor = 0};
  return twice(std::countr_zero(2u)) - 2 + (one < version{1, 1} ? 0 : 1);
}" HAVE_CXX20)
set(CMAKE_REQUIRED_FLAGS "${rdma_flags_before}")
if (NOT HAVE_CXX20)
  message(FATAL_ERROR "ENABLE_SHIFT needs C++20, which ${CMAKE_CXX_COMPILER} "
    "does not have (g++ has it from 11 on)")
endif()

# rdma_cxx_objects(TARGET source...): compiles the sources as a plug-in's.
function(rdma_cxx_objects target)
  add_library(${target} OBJECT ${ARGN})
  set_target_properties(${target} PROPERTIES
    CXX_STANDARD 20 CXX_STANDARD_REQUIRED ON CXX_EXTENSIONS ON
    CXX_VISIBILITY_PRESET hidden C_VISIBILITY_PRESET hidden VISIBILITY_INLINES_HIDDEN ON
    POSITION_INDEPENDENT_CODE ON)
  target_compile_options(${target} PRIVATE
    $<$<COMPILE_LANGUAGE:CXX>:-Wall -Wextra -Wno-unused-parameter -Wno-missing-field-initializers>)
endfunction()

# rdma_cxx_provider(NAME OBJECTS): links the objects of the target OBJECTS to a
# plug-in for libibverbs that stacks devices, and makes the files .driver and
# .stack that have libibverbs load it. No static library is made: a static
# libibverbs must not need a C++ run-time.
function(rdma_cxx_provider name objects)
  set(plugin ${name}-rdmav${IBVERBS_PABI_VERSION})
  add_library(${plugin} MODULE $<TARGET_OBJECTS:${objects}>)
  set_target_properties(${plugin} PROPERTIES
    LIBRARY_OUTPUT_DIRECTORY "${BUILD_LIB}"
    LINKER_LANGUAGE CXX
    LINK_FLAGS "${CMAKE_SHARED_LINKER_FLAGS}")
  rdma_set_library_map(${plugin} ${BUILDLIB}/provider.map)
  target_link_libraries(${plugin} PRIVATE ibverbs Threads::Threads ${CMAKE_DL_LIBS})
  # The plug-in may have started threads, so it stays loaded.
  target_link_options(${plugin} PRIVATE -Wl,-z,nodelete)
  if (RDMA_CXX_STATIC_RUNTIME)
    target_link_options(${plugin} PRIVATE -static-libstdc++ -static-libgcc -Wl,--exclude-libs,ALL)
  endif()

  # One .driver file for programs that run from the build folder, and one to install.
  foreach(row "${BUILD_ETC}/libibverbs.d|${BUILD_LIB}/lib" "${CMAKE_CURRENT_BINARY_DIR}|")
    string(REPLACE "|" ";" row "${row}")
    list(GET row 0 folder)
    list(GET row 1 prefix)
    file(MAKE_DIRECTORY "${folder}")
    file(WRITE "${folder}/${name}.driver" "driver ${prefix}${name}\n")
    file(WRITE "${folder}/${name}.stack" "# ${name}.driver is to be loaded in any case.\n")
  endforeach()
  install(FILES "${CMAKE_CURRENT_BINARY_DIR}/${name}.driver" "${CMAKE_CURRENT_BINARY_DIR}/${name}.stack"
    DESTINATION ${CONFIG_DIR})
  set(folder "${VERBS_PROVIDER_DIR}")
  if (folder STREQUAL "")
    set(folder "${CMAKE_INSTALL_LIBDIR}")
  endif()
  install(TARGETS ${plugin} DESTINATION "${folder}")
endfunction()
