// SPDX-License-Identifier: Apache-2.0
// A library that has no entry of a plugin.
extern "C" __attribute__((visibility("default"))) int something_else() { return 1; }
