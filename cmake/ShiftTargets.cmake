# Helpers shared by the build files of all folders.
find_package(Threads REQUIRED)

# Warnings and sanitizers for all of the project's own code. Warnings are errors in the presets only
# (CMAKE_COMPILE_WARNING_AS_ERROR): whoever builds a package with a newer compiler must not stumble over new ones.
add_library(shift_options INTERFACE)
target_compile_options(shift_options INTERFACE
  -Wall -Wextra -Wshadow -Wno-unused-parameter -Wno-missing-field-initializers
  -Wno-address-of-packed-member
  $<$<COMPILE_LANGUAGE:CXX>:-Wno-invalid-offsetof>
  $<$<COMPILE_LANGUAGE:CXX>:-Wnon-virtual-dtor -Woverloaded-virtual>
  $<$<BOOL:$<TARGET_PROPERTY:SHIFT_UNOPTIMISED>>:-O0 -g0>)
target_link_libraries(shift_options INTERFACE Threads::Threads ${CMAKE_DL_LIBS})
# The type None defines nothing itself, and packages shall contain what the release build's tests have seen.
target_compile_definitions(shift_options INTERFACE $<$<CONFIG:None>:NDEBUG>)

# What a bug of memory can do in other people's programs. The sanitizers look for the same, and do not agree with
# _FORTIFY_SOURCE.
if(NOT SHIFT_SANITIZE AND NOT SHIFT_FUZZ)
  set(branch_protection -fcf-protection)
  if(CMAKE_SYSTEM_PROCESSOR STREQUAL aarch64)
    set(branch_protection -mbranch-protection=standard)
  endif()
  # What comes from outside may be stricter, as on Fedora.
  set(fortify "")
  if(NOT CMAKE_CXX_FLAGS MATCHES "_FORTIFY_SOURCE")
    set(fortify "-U_FORTIFY_SOURCE$<SEMICOLON>-D_FORTIFY_SOURCE=2")
  endif()
  target_compile_options(shift_options INTERFACE
    -fstack-protector-strong -fstack-clash-protection ${branch_protection}
    $<IF:$<BOOL:$<TARGET_PROPERTY:SHIFT_UNOPTIMISED>>,-U_FORTIFY_SOURCE,${fortify}>)
  target_compile_definitions(shift_options INTERFACE $<$<COMPILE_LANGUAGE:CXX>:_GLIBCXX_ASSERTIONS>)
  target_link_options(shift_options INTERFACE -Wl,-z,relro -Wl,-z,now -Wl,-z,noexecstack)
endif()
set(SHIFT_SANITIZER_RUNTIME "")
if(SHIFT_SANITIZE)
  set(sanitized $<NOT:$<BOOL:$<TARGET_PROPERTY:SHIFT_STRANGER>>>)
  target_compile_options(shift_options INTERFACE
    $<${sanitized}:-fsanitize=${SHIFT_SANITIZE}> -fno-omit-frame-pointer -fno-sanitize-recover=undefined
    $<$<BOOL:$<TARGET_PROPERTY:SHIFT_ONLY_TESTS>>:-fno-sanitize=undefined>
    # With a sanitizer, g++ 12 gives false warnings about the standard library's <regex>. It also warns that the
    # thread sanitizer ignores fences; what our fences order is atomic itself.
    $<$<CXX_COMPILER_ID:GNU>:-Wno-maybe-uninitialized -Wno-tsan>)
  target_link_options(shift_options INTERFACE $<${sanitized}:-fsanitize=${SHIFT_SANITIZE}>)
  # Unmodified programs must load the run-time first, so the launchers put it into LD_PRELOAD.
  if(SHIFT_SANITIZE MATCHES address)
    set(runtime libasan.so)
  else()
    set(runtime libtsan.so)
  endif()
  execute_process(COMMAND ${CMAKE_CXX_COMPILER} -print-file-name=${runtime}
    OUTPUT_VARIABLE SHIFT_SANITIZER_RUNTIME OUTPUT_STRIP_TRAILING_WHITESPACE)
endif()
if(SHIFT_FUZZ)  # all code reports its coverage to the fuzzer; only the fuzzers link its main()
  target_compile_options(shift_options INTERFACE -fsanitize=fuzzer-no-link)
endif()
add_compile_definitions(SHIFT_SANITIZER_RUNTIME="${SHIFT_SANITIZER_RUNTIME}")

# shift_library(NAME sources...): a static library whose folder is an include path of its users.
function(shift_library name)
  add_library(${name} STATIC ${ARGN})
  target_link_libraries(${name} PUBLIC shift_options)
  target_include_directories(${name} PUBLIC ${CMAKE_CURRENT_SOURCE_DIR})
  shift_hooks_apart(${name} ${ARGN})
endfunction()

# shift_hooks_apart(TARGET sources...): sources that hold hooks for planted bugs are not compiled together with
# others, so that no object of the library is needed beside those with planted bugs.
function(shift_hooks_apart target)
  set(hooked 0)
  set(plain 0)
  foreach(source ${ARGN})
    if(source MATCHES "[.]cc$")
      file(STRINGS ${source} hooks REGEX "(SHIFT|CXEMU)_PLANT\\([a-z_]+\\)" LIMIT_COUNT 1)
      set(kind plain)
      if(hooks)
        set(kind hooked)
      endif()
      math(EXPR batch "${${kind}} / ${CMAKE_UNITY_BUILD_BATCH_SIZE}")
      math(EXPR ${kind} "${${kind}} + 1")
      set_source_files_properties(${source} PROPERTIES UNITY_GROUP ${kind}_${batch})
    endif()
  endforeach()
  set_target_properties(${target} PROPERTIES UNITY_BUILD_MODE GROUP)
endfunction()

# shift_guest(TARGET): a shared library that lives in other programs' processes. It contains its C++
# run-time, hidden; it is never unloaded; it exports only what its version script names.
function(shift_guest target)
  target_link_options(${target} PRIVATE
    -static-libstdc++ -static-libgcc -Wl,-z,now -Wl,-z,nodelete -Wl,--no-undefined
    -Wl,--exclude-libs,ALL)
endfunction()

# shift_only_tests(TARGET): sources that only test other code. They are built without the undefined-behaviour
# sanitizer, which would double their compile time. Programs are compiled as libraries are, so that they share
# their precompiled headers.
function(shift_only_tests target)
  set_target_properties(${target} PROPERTIES SHIFT_ONLY_TESTS ON POSITION_INDEPENDENT_CODE OFF)
  target_compile_options(${target} PRIVATE -fPIC)
endfunction()

# shift_strangers(TARGET...): programs of tests that know nothing of the layer, and what they share. They stand for
# other people's programs, so the address sanitizer is not compiled into them, and the launchers load its run-time
# for them. The thread sanitizer has to see how a program's own threads agree.
function(shift_strangers)
  foreach(target ${ARGN})
    shift_only_tests(${target})
    if(SHIFT_SANITIZE MATCHES address)
      set_target_properties(${target} PROPERTIES SHIFT_STRANGER ON)
    endif()
  endforeach()
endfunction()

# shift_unoptimised(TARGET): like shift_only_tests, for sources whose speed does not matter. Most of their
# compile time would go into optimising other libraries' templates and describing them for debuggers, so these
# find lines in such sources only with the preset dev.
function(shift_unoptimised target)
  shift_only_tests(${target})
  set_target_properties(${target} PROPERTIES SHIFT_UNOPTIMISED ON)
endfunction()

# shift_replaced(SOURCE...): tests define what these sources do, so each stays an object of its own in its library.
function(shift_replaced)
  set_source_files_properties(${ARGN} PROPERTIES SKIP_UNITY_BUILD_INCLUSION ON)
endfunction()

# shift_cold(TARGET SOURCE...): adds sources to TARGET whose speed does not matter, as command lines. Packages have
# them like any others, since the distribution's flags hold for all that it ships.
function(shift_cold target)
  add_library(${target}_cold OBJECT ${ARGN})
  target_include_directories(${target}_cold PRIVATE $<TARGET_PROPERTY:${target},INCLUDE_DIRECTORIES>)
  target_compile_definitions(${target}_cold PRIVATE $<TARGET_PROPERTY:${target},COMPILE_DEFINITIONS>)
  target_link_libraries(${target}_cold PRIVATE shift_options)
  if(NOT CMAKE_BUILD_TYPE STREQUAL None)
    shift_unoptimised(${target}_cold)
  endif()
  target_sources(${target} PRIVATE $<TARGET_OBJECTS:${target}_cold>)
endfunction()

# Put before each program of a test that is not named by its target: a cross build's programs need an emulator.
set(SHIFT_EMULATOR)
if(CMAKE_CROSSCOMPILING)
  set(SHIFT_EMULATOR ${CMAKE_CROSSCOMPILING_EMULATOR})
endif()

# Put before the command of a test that computes for long: it gives way to tests that wait for what must not be
# late.
set(SHIFT_GIVES_WAY nice -n 10)

# shift_quiet_tests(NAME...): these tests run real programs on emulated hosts. They mostly wait, but are wrong
# when the machine is late. They run one after the other, and `ctest -j 4` runs one other test beside them.
function(shift_quiet_tests)
  set_tests_properties(${ARGN} PROPERTIES RESOURCE_LOCK quiet PROCESSORS 3)
endfunction()

# shift_test(NAME sources... [LIBS libs...] [OPTIMISED] [GIVES_WAY] [RUNS_PROGRAMS]): a GoogleTest program
# registered with ctest as NAME, with the label unit. OPTIMISED is for tests that compute much themselves,
# GIVES_WAY for long ones, RUNS_PROGRAMS for those that run others' programs, whose leaks are their own.
function(shift_test name)
  if(NOT BUILD_TESTING)
    message(FATAL_ERROR "${name}: tests are only built with BUILD_TESTING")
  endif()
  cmake_parse_arguments(arg "OPTIMISED;GIVES_WAY;RUNS_PROGRAMS" "" "LIBS" ${ARGN})
  add_executable(${name} ${arg_UNPARSED_ARGUMENTS})
  target_link_libraries(${name} PRIVATE shift_options ${arg_LIBS} GTest::gtest GTest::gtest_main)
  shift_only_tests(${name})
  if(NOT arg_OPTIMISED)
    shift_unoptimised(${name})
  endif()
  set_target_properties(${name} PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/test)
  set(before)
  if(arg_GIVES_WAY)
    set(before ${SHIFT_GIVES_WAY})
  endif()
  add_test(NAME ${name} COMMAND ${before} ${SHIFT_EMULATOR} $<TARGET_FILE:${name}>)
  set_tests_properties(${name} PROPERTIES LABELS unit TIMEOUT 600)
  if(SHIFT_SANITIZE MATCHES address AND NOT arg_RUNS_PROGRAMS)
    # check.sh switches the search for leaks off, for the tests that run others' programs.
    set_tests_properties(${name} PROPERTIES ENVIRONMENT_MODIFICATION ASAN_OPTIONS=set:detect_leaks=1)
  endif()
endfunction()

# shift_planted_bugs(TARGET AREA FILE...): one test for each bug of the list AREA_bugs, which must fail, and one
# without a bug. They run the tests that these sources of the test program TARGET hold, with the layer that has the
# bugs.
function(shift_planted_bugs target area)
  string(REGEX REPLACE "_test$" "_planted_test" program ${target})
  if(NOT TARGET ${program})
    get_target_property(libraries ${target} LINK_LIBRARIES)
    add_executable(${program} $<TARGET_OBJECTS:${target}>)
    target_link_libraries(${program} PRIVATE shift_provider_planted ${libraries})
    set_target_properties(${program} PROPERTIES LINKER_LANGUAGE CXX
      RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/test)
  endif()
  set(suites)
  foreach(file ${ARGN})
    file(STRINGS ${file} lines REGEX "^TEST(_F|_P)?\\([A-Za-z]+,")
    foreach(line ${lines})
      string(REGEX REPLACE "^TEST[_FP]*\\(([A-Za-z]+),.*" "\\1.*:*/\\1.*" suite "${line}")
      list(APPEND suites ${suite})
    endforeach()
    set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${file})
  endforeach()
  list(REMOVE_DUPLICATES suites)
  list(JOIN suites ":" filter)
  foreach(bug planted_none ${${area}_bugs})
    add_test(NAME ${area}_${bug} COMMAND ${program} --gtest_fail_fast --gtest_filter=${filter})
    set_tests_properties(${area}_${bug} PROPERTIES LABELS unit TIMEOUT 120)
    if(NOT bug STREQUAL planted_none)
      set_tests_properties(${area}_${bug} PROPERTIES WILL_FAIL ON ENVIRONMENT SHIFT_PLANT=${bug})
    endif()
  endforeach()
endfunction()

# shift_fuzzers(PREFIX NAMESPACE LIBRARY target...): one fuzzer, named PREFIX_target, for each target function of
# the library. They are built with clang only (preset "fuzz", tools/fuzz.sh).
function(shift_fuzzers prefix namespace library)
  if(NOT SHIFT_FUZZ)
    return()
  endif()
  foreach(target ${ARGN})
    add_executable(${prefix}_${target} ${CMAKE_SOURCE_DIR}/emulator/fuzz/fuzz_main.cc)
    target_compile_definitions(${prefix}_${target} PRIVATE FUZZ_NAMESPACE=${namespace} FUZZ_TARGET=${target})
    target_link_libraries(${prefix}_${target} PRIVATE ${library})
    target_link_options(${prefix}_${target} PRIVATE -fsanitize=fuzzer)
  endforeach()
endfunction()

if(BUILD_TESTING OR NOT DEFINED BUILD_TESTING)
  find_package(GTest REQUIRED)
endif()
