# Runs at installation, after shift_install_setting() has set the variables. A file that is there already stays,
# since somebody may have changed it. A package's installation goes to an empty folder, so it always gets the file.
if(NOT "${CMAKE_INSTALL_PREFIX}" STREQUAL "${shift_prefix}")
  # `cmake --install --prefix` asks for all files in another place, so nothing may get into /etc.
  string(REGEX REPLACE "^/+" "" shift_folder "${shift_folder}")
endif()
if(NOT IS_ABSOLUTE "${shift_folder}")
  set(shift_folder "${CMAKE_INSTALL_PREFIX}/${shift_folder}")
endif()
get_filename_component(shift_name "${shift_file}" NAME)
if(EXISTS "$ENV{DESTDIR}${shift_folder}/${shift_name}")
  message(STATUS "Kept: $ENV{DESTDIR}${shift_folder}/${shift_name}")
else()
  file(INSTALL "${shift_file}" DESTINATION "${shift_folder}")
endif()
