# Finds a library for tests or benchmarks on the system, else downloads its source.

include(FetchContent)

# Sets `<package>_FOUND` in the caller's scope: true if the package's imported targets exist. Where
# it is neither installed nor to be downloaded, prints one line that names the `purpose` that is
# left out and the Debian package that brings it back.
function(evenstride_find_or_fetch package)
  cmake_parse_arguments(PARSE_ARGV 1 arg "" "URL;SHA256;DEBIAN_PACKAGE;PURPOSE" "")
  find_package(${package} CONFIG QUIET)
  set(found "${${package}_FOUND}")
  if(NOT found)
    set(archive "${PROJECT_BINARY_DIR}/_deps/${package}.tar.gz")
    set(checksum "")
    if(EXISTS "${archive}")
      file(SHA256 "${archive}" checksum)
    endif()
    if(NOT checksum STREQUAL arg_SHA256)
      file(DOWNLOAD "${arg_URL}" "${archive}" STATUS download INACTIVITY_TIMEOUT 10 TIMEOUT 120)
      if(download MATCHES "^0;")
        file(SHA256 "${archive}" checksum)
      endif()
    endif()
    if(checksum STREQUAL arg_SHA256)
      set(scope "")
      if(CMAKE_VERSION VERSION_GREATER_EQUAL 3.28)
        set(scope EXCLUDE_FROM_ALL SYSTEM)
      endif()
      FetchContent_Declare(
        ${package}
        URL "${archive}"
        URL_HASH "SHA256=${arg_SHA256}"
        DOWNLOAD_EXTRACT_TIMESTAMP OFF
        ${scope})
      FetchContent_MakeAvailable(${package})
      set(found TRUE)
    else()
      file(REMOVE "${archive}")
      message(NOTICE "evenstride: ${arg_PURPOSE} are left out, for ${package} is neither installed "
                     "(on Debian: ${arg_DEBIAN_PACKAGE}) nor can it be downloaded.")
    endif()
  endif()
  set(${package}_FOUND "${found}" PARENT_SCOPE)
endfunction()
