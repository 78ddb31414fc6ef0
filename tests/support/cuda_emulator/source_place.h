// SPDX-License-Identifier: Apache-2.0
// Names of places in compiled code, for the texts of faults.
#pragma once

#include <source_location>
#include <span>
#include <string>
#include <vector>

namespace meshloom::emulator {

/// "kernels/cuda/copy.cu:31" for the instruction behind a return address, by addr2line; where that
/// says nothing, the file of the code and the offset in it. Takes tens of milliseconds.
std::string place_of_return(const void* return_address);
std::string place_of(const std::source_location& site);
/// The name of the function at this address, without its arguments.
std::string function_name(const void* function);
/// The same of several functions of one library, at once.
std::vector<std::string> function_names(std::span<const void* const> functions);

}  // namespace meshloom::emulator
