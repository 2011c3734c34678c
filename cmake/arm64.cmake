# Toolchain file: builds for aarch64 on an x86-64 machine. Debian's cross compiler has the C and C++ libraries; all
# others come from a folder into which tools/arm64/sysroot.sh unpacks Debian's arm64 packages. Programs run under
# the emulator that lies beside it.
set(CMAKE_SYSTEM_NAME Linux)
set(CMAKE_SYSTEM_PROCESSOR aarch64)
set(CMAKE_LIBRARY_ARCHITECTURE aarch64-linux-gnu)
set(CMAKE_C_COMPILER aarch64-linux-gnu-gcc)
set(CMAKE_CXX_COMPILER aarch64-linux-gnu-g++)
set(CMAKE_ASM_COMPILER aarch64-linux-gnu-gcc)

get_filename_component(arm64_root ${CMAKE_CURRENT_LIST_DIR}/../build/arm64-root ABSOLUTE)
set(CMAKE_FIND_ROOT_PATH ${arm64_root}/sysroot)
set(CMAKE_FIND_ROOT_PATH_MODE_PROGRAM NEVER)
set(CMAKE_FIND_ROOT_PATH_MODE_LIBRARY ONLY)
set(CMAKE_FIND_ROOT_PATH_MODE_INCLUDE ONLY)
set(CMAKE_FIND_ROOT_PATH_MODE_PACKAGE ONLY)
# Some libraries are linked by name, as programs link them, and need libraries of their own.
foreach(folder /usr/lib/aarch64-linux-gnu /lib/aarch64-linux-gnu)
  string(APPEND arm64_link " -L${CMAKE_FIND_ROOT_PATH}${folder} -Wl,-rpath-link,${CMAKE_FIND_ROOT_PATH}${folder}")
endforeach()
foreach(kind EXE SHARED MODULE)
  set(CMAKE_${kind}_LINKER_FLAGS_INIT "${arm64_link}")
endforeach()
set(CMAKE_CROSSCOMPILING_EMULATOR ${arm64_root}/qemu-aarch64;-L;${CMAKE_FIND_ROOT_PATH})
