# Fails if a file of the core includes more than the core, the standard library and the system.
# Called with -D CORE=<folder>.

set(system_headers sched.h sys/mman.h)

file(GLOB files "${CORE}/*.h" "${CORE}/*.cc")
if(NOT files)
  message(FATAL_ERROR "There is no source file in ${CORE}.")
endif()

foreach(file IN LISTS files)
  file(STRINGS "${file}" includes REGEX "^[ \t]*#[ \t]*(include|import)")
  foreach(include IN LISTS includes)
    string(REGEX MATCH "[<\"]([^>\"]+)" name "${include}")
    set(name "${CMAKE_MATCH_1}")
    if(include MATCHES "<")
      # The headers of the standard library are those without a suffix.
      set(is_allowed FALSE)
      if(name MATCHES "^[a-z0-9_]+$" OR name IN_LIST system_headers)
        set(is_allowed TRUE)
      endif()
    elseif(name MATCHES "^core/[a-z0-9_]+\\.h$")
      set(is_allowed TRUE)
    else()
      set(is_allowed FALSE)
    endif()
    if(NOT is_allowed)
      message(SEND_ERROR "${file} includes ${name}.")
    endif()
  endforeach()
endforeach()
