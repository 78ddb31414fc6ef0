// SPDX-License-Identifier: Apache-2.0
// The device that kernel tests compute on: its backend, contexts for calls, and bodies that run on
// every setting of it.
#pragma once

#include <gtest/gtest.h>

#include <cstddef>
#include <functional>
#include <memory>
#include <span>

#include "daemon/tensor/storage.h"
#include "kernels/backend.h"
#include "tests/support/test_device.h"

namespace meshloom::kernels::test {

/// The backend of test_device().
Backend& backend();

/// A context of one thread on the device's stream. Its workspace is memory of the device, which on
/// the CPU holds NaN, so that nothing relies on zeros.
KernelContext test_context();

/// Runs `body` as run_on_device does, on the CPU for every instruction set of this machine with 1,
/// 2 and 3 threads. On the first setting it runs twice, and what it downloads must have the same
/// bits both times: the body makes what it writes, and draws no numbers from outside.
void for_all_settings(const std::function<void(const KernelContext&)>& body);

/// Runs `body` with test_context().
void run_on_device(const std::function<void(const KernelContext&)>& body);

/// Waits until all work is done, and throws what it threw.
void finish();

/// Memory of the device; its end need not wait for the work that uses it.
std::shared_ptr<Storage> allocate_on_device(std::size_t bytes);

/// What a tensor downloads, for the comparison of two runs.
void note_download(std::span<const std::byte> bytes);

/// Ends the device behind all tests, and prints a digest of the bits of all downloads, which no
/// order of work may change.
::testing::Environment* make_kernel_environment();

inline ::testing::Environment* const kKernelEnvironment =
    ::testing::AddGlobalTestEnvironment(make_kernel_environment());

}  // namespace meshloom::kernels::test
