# Writes the bytes of a file as the elements of a C++ array. Called with -D FROM=<file> and
# -D TO=<file>.

file(READ "${FROM}" bytes HEX)
if(bytes STREQUAL "")
  message(FATAL_ERROR "${FROM} is empty.")
endif()
string(REGEX REPLACE "(..)" "0x\\1," bytes "${bytes}")
file(WRITE "${TO}" "${bytes}\n")
