# SPDX-License-Identifier: Apache-2.0
# Writes the bytes of a file as a C++ function.
#   cmake -D INPUT=FILE -D OUTPUT=FILE.cpp -D HEADER=HEADER.h -D FUNCTION=NAME -P EmbedFile.cmake
# HEADER declares  std::string_view meshloom::NAME().
file(READ ${INPUT} bytes HEX)
string(LENGTH "${bytes}" digits)
math(EXPR size "${digits} / 2")
string(REGEX REPLACE "([0-9a-f][0-9a-f])" "0x\\1," bytes "${bytes}")
string(REGEX REPLACE "((0x..,){24})" "    \\1\n" bytes "${bytes}")
get_filename_component(name ${INPUT} NAME)
file(WRITE ${OUTPUT} "// SPDX-License-Identifier: Apache-2.0
// Written by CMake from ${name}; changes here are lost.
#include \"${HEADER}\"

namespace meshloom {
namespace {

constexpr unsigned char kBytes[] = {
${bytes}};

}  // namespace

std::string_view ${FUNCTION}() { return {reinterpret_cast<const char*>(kBytes), ${size}}; }

}  // namespace meshloom
")
