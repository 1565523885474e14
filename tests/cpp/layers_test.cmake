# Fails if a file of a layer includes more than that layer, those below it, the standard library and
# the system. Called with -D CSRC=<folder> and -D LAYERS=<the layer and those below it, spaced>.

cmake_minimum_required(VERSION 3.24)

set(core_system_headers sched.h sys/mman.h)
set(collate_system_headers)
set(loader_system_headers pthread.h signal.h sys/resource.h unistd.h)
set(cuda_system_headers dlfcn.h sys/mman.h)

string(REPLACE " " ";" layers "${LAYERS}")
list(GET layers 0 layer)
list(JOIN layers "|" allowed_folders)

file(GLOB files "${CSRC}/${layer}/*.h" "${CSRC}/${layer}/*.cc")
if(NOT files)
  message(FATAL_ERROR "There is no source file in ${CSRC}/${layer}.")
endif()

foreach(file IN LISTS files)
  file(STRINGS "${file}" includes REGEX "^[ \t]*#[ \t]*(include|import)")
  foreach(include IN LISTS includes)
    string(REGEX MATCH "[<\"]([^>\"]+)" name "${include}")
    set(name "${CMAKE_MATCH_1}")
    if(include MATCHES "<")
      # The headers of the standard library are those without a suffix.
      set(is_allowed FALSE)
      if(name MATCHES "^[a-z0-9_]+$" OR name IN_LIST ${layer}_system_headers)
        set(is_allowed TRUE)
      endif()
    elseif(name MATCHES "^(${allowed_folders})/[a-z0-9_]+\\.(h|inc)$")
      set(is_allowed TRUE)
    else()
      set(is_allowed FALSE)
    endif()
    if(NOT is_allowed)
      message(SEND_ERROR "${file} includes ${name}.")
    endif()
  endforeach()
endforeach()
