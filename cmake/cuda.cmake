# Compiles the kernel and embeds it. CUDA is no language of the project: nvcc is called as a
# program, its result is an array, and nothing is linked.

set(EVENSTRIDE_CUDA AUTO CACHE STRING "Embed the CUDA kernel: AUTO (where nvcc is found), ON, OFF")
set_property(CACHE EVENSTRIDE_CUDA PROPERTY STRINGS AUTO ON OFF)
if(NOT EVENSTRIDE_CUDA MATCHES "^(AUTO|ON|OFF)$")
  message(FATAL_ERROR "EVENSTRIDE_CUDA must be AUTO, ON or OFF, but is '${EVENSTRIDE_CUDA}'.")
endif()

set(evenstride_kernel_flags -std=c++20 -O3 -Wno-deprecated-gpu-targets)
if(EVENSTRIDE_DEVELOPER)
  list(APPEND evenstride_kernel_flags -Werror all-warnings)
endif()

# Finds nvcc, and sets in the caller's scope `compiler` to its version and `codes` to the options
# that name the devices; or `problem` to why it cannot compile `source`.
function(evenstride_find_nvcc source)
  set(python_packages "")
  if(Python_SITELIB)
    set(python_packages "${Python_SITELIB}/nvidia/cu13/bin")
  endif()
  find_program(
    EVENSTRIDE_NVCC
    NAMES $ENV{CUDACXX} nvcc
    HINTS ENV CUDA_HOME ENV CUDA_PATH
    PATHS /usr/local/cuda/bin ${python_packages}
    PATH_SUFFIXES bin
    DOC "The CUDA compiler")
  mark_as_advanced(EVENSTRIDE_NVCC)
  if(NOT EVENSTRIDE_NVCC)
    set(problem "nvcc was not found" PARENT_SCOPE)
    return()
  endif()

  execute_process(COMMAND "${EVENSTRIDE_NVCC}" --version OUTPUT_VARIABLE version ERROR_QUIET)
  execute_process(COMMAND "${EVENSTRIDE_NVCC}" --list-gpu-code OUTPUT_VARIABLE known ERROR_QUIET)
  string(REGEX MATCH "V([0-9.]+)" version "${version}")
  set(version "${CMAKE_MATCH_1}")
  string(REGEX MATCHALL "sm_[0-9]+" known "${known}")
  set(codes "")
  foreach(device IN ITEMS 75 80 86 89 90 100 120)
    if(sm_${device} IN_LIST known)
      list(APPEND codes -gencode arch=compute_${device},code=sm_${device})
      set(newest ${device})
    endif()
  endforeach()
  if(version STREQUAL "" OR codes STREQUAL "")
    set(problem "${EVENSTRIDE_NVCC} does not say its version and devices" PARENT_SCOPE)
    return()
  endif()
  # Devices that are newer still compile this.
  list(APPEND codes -gencode arch=compute_${newest},code=compute_${newest})

  # Once for each pair of compilers: nvcc takes few versions of the other.
  set(pair "${EVENSTRIDE_NVCC} ${version} ${CMAKE_CXX_COMPILER} ${CMAKE_CXX_COMPILER_VERSION}")
  if(NOT pair STREQUAL EVENSTRIDE_NVCC_WORKS_WITH)
    execute_process(
      COMMAND
        "${EVENSTRIDE_NVCC}" -ccbin "${CMAKE_CXX_COMPILER}" ${evenstride_kernel_flags} -fatbin
        -gencode arch=compute_${newest},code=compute_${newest} "-I${CMAKE_CURRENT_SOURCE_DIR}" -o
        "${CMAKE_CURRENT_BINARY_DIR}/tried.fatbin" "${source}"
      RESULT_VARIABLE result
      OUTPUT_VARIABLE output
      ERROR_VARIABLE output)
    if(NOT result EQUAL 0)
      message(VERBOSE "${output}")
      set(problem "${EVENSTRIDE_NVCC} (${version}) cannot compile it with ${CMAKE_CXX_COMPILER}"
          PARENT_SCOPE)
      return()
    endif()
    set(EVENSTRIDE_NVCC_WORKS_WITH "${pair}" CACHE INTERNAL "Compilers that compile the kernel")
  endif()
  set(compiler "${version}" PARENT_SCOPE)
  set(codes "${codes}" PARENT_SCOPE)
endfunction()

# Embeds the kernel in `target`, whose `file` includes cuda/pad_kernel.inc if it finds
# EVENSTRIDE_NVCC_VERSION defined; or says in one line why not.
function(evenstride_embed_kernel target file)
  set(EVENSTRIDE_NO_KERNEL "EVENSTRIDE_CUDA is OFF" CACHE INTERNAL "Why there is no kernel")
  if(EVENSTRIDE_CUDA STREQUAL "OFF")
    return()
  endif()

  set(source "${CMAKE_CURRENT_SOURCE_DIR}/cuda/pad_kernel.cu")
  set(problem "")
  evenstride_find_nvcc("${source}")
  set(EVENSTRIDE_NO_KERNEL "${problem}" CACHE INTERNAL "")
  if(NOT problem STREQUAL "")
    if(EVENSTRIDE_CUDA STREQUAL "ON")
      message(FATAL_ERROR "EVENSTRIDE_CUDA is ON, but ${problem}.")
    endif()
    message(NOTICE "evenstride: the CUDA kernel is left out, for ${problem}.")
    return()
  endif()

  set(folder "${CMAKE_CURRENT_BINARY_DIR}/kernel/cuda")
  file(MAKE_DIRECTORY "${folder}")
  set(fatbin "${folder}/pad_kernel.fatbin")
  set(array "${folder}/pad_kernel.inc")
  add_custom_command(
    OUTPUT "${fatbin}"
    COMMAND
      "${EVENSTRIDE_NVCC}" -ccbin "${CMAKE_CXX_COMPILER}" ${evenstride_kernel_flags} -fatbin
      -Xfatbin -compress-all --threads 0 ${codes} "-I${CMAKE_CURRENT_SOURCE_DIR}" -MD -MT
      "${fatbin}" -MF "${fatbin}.d" -o "${fatbin}" "${source}"
    MAIN_DEPENDENCY "${source}"
    DEPENDS "${EVENSTRIDE_NVCC}"
    DEPFILE "${fatbin}.d"
    COMMENT "Compiling the kernel with nvcc ${compiler}"
    VERBATIM)
  set(writer "${PROJECT_SOURCE_DIR}/cmake/write_array.cmake")
  add_custom_command(
    OUTPUT "${array}"
    COMMAND "${CMAKE_COMMAND}" "-DFROM=${fatbin}" "-DTO=${array}" -P "${writer}"
    DEPENDS "${fatbin}" "${writer}"
    VERBATIM)
  add_custom_target(evenstride_kernel DEPENDS "${array}")

  add_dependencies(${target} evenstride_kernel)
  target_include_directories(${target} PRIVATE "${CMAKE_CURRENT_BINARY_DIR}/kernel")
  set_property(
    SOURCE "${file}"
    APPEND
    PROPERTY COMPILE_DEFINITIONS "EVENSTRIDE_NVCC_VERSION=\"${compiler}\"")
  set_property(SOURCE "${file}" APPEND PROPERTY OBJECT_DEPENDS "${array}")
endfunction()
