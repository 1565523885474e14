# What developers' builds add to a target, and users' builds do not: `evenstride_warnings`, linked
# privately, and `evenstride_instrumentation`, which everything that shares a program must share.

add_library(evenstride_warnings INTERFACE)
if(EVENSTRIDE_DEVELOPER)
  target_compile_options(
    evenstride_warnings
    INTERFACE
      -Werror
      -Wall
      -Wextra
      -Wpedantic
      -Wcast-align
      -Wcast-qual
      -Wconversion
      -Wdouble-promotion
      -Wextra-semi
      -Wformat=2
      -Wimplicit-fallthrough
      -Wnon-virtual-dtor
      -Wold-style-cast
      -Woverloaded-virtual
      -Wshadow
      -Wsign-conversion
      -Wundef
      $<$<CXX_COMPILER_ID:GNU>:-Wduplicated-branches>
      $<$<CXX_COMPILER_ID:GNU>:-Wduplicated-cond>
      $<$<CXX_COMPILER_ID:GNU>:-Wlogical-op>)
endif()

add_library(evenstride_instrumentation INTERFACE)
if(EVENSTRIDE_DEVELOPER)
  target_compile_definitions(
    evenstride_instrumentation INTERFACE _GLIBCXX_ASSERTIONS _LIBCPP_HARDENING_MODE=4)
endif()

if(EVENSTRIDE_SANITIZE)
  list(JOIN EVENSTRIDE_SANITIZE "," sanitizers)
  target_compile_options(
    evenstride_instrumentation
    INTERFACE -fsanitize=${sanitizers} -fno-sanitize-recover=all -fno-omit-frame-pointer)
  target_link_options(evenstride_instrumentation INTERFACE -fsanitize=${sanitizers})
endif()

# ThreadSanitizer cannot place its shadow memory where the kernel randomizes addresses by more bits
# than it expects, so its programs run without randomization where the system allows that.
if("thread" IN_LIST EVENSTRIDE_SANITIZE)
  find_program(EVENSTRIDE_SETARCH setarch)
  mark_as_advanced(EVENSTRIDE_SETARCH)
  if(EVENSTRIDE_SETARCH)
    execute_process(
      COMMAND ${EVENSTRIDE_SETARCH} --addr-no-randomize true
      RESULT_VARIABLE setarch_result
      OUTPUT_QUIET ERROR_QUIET)
    if(setarch_result EQUAL 0)
      set(CMAKE_CROSSCOMPILING_EMULATOR ${EVENSTRIDE_SETARCH} --addr-no-randomize)
    endif()
  endif()
endif()

if(EVENSTRIDE_CLANG_TIDY)
  find_program(EVENSTRIDE_CLANG_TIDY_PROGRAM clang-tidy REQUIRED)
  mark_as_advanced(EVENSTRIDE_CLANG_TIDY_PROGRAM)
  # The compiler may be GCC, some of whose warnings are unknown to clang-tidy.
  set(CMAKE_CXX_CLANG_TIDY ${EVENSTRIDE_CLANG_TIDY_PROGRAM} --quiet
                           --extra-arg=-Wno-unknown-warning-option)
endif()

# Sets what every target of the project has in common.
function(evenstride_set_up target)
  target_compile_features(${target} PUBLIC cxx_std_20)
  set_target_properties(
    ${target}
    PROPERTIES CXX_EXTENSIONS OFF
               CXX_VISIBILITY_PRESET hidden
               VISIBILITY_INLINES_HIDDEN ON
               POSITION_INDEPENDENT_CODE ON)
  target_link_libraries(${target} PRIVATE evenstride_warnings PUBLIC evenstride_instrumentation)
endfunction()
