// SPDX-License-Identifier: Apache-2.0
// The device that a run computes on: what run.device means, and what `auto` becomes.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "kernels/base/device.h"
#include "kernels/base/error.h"
#include "v1/config.pb.h"

namespace meshloom::train {

struct CudaDevice {
  int index = 0;
  std::string compute_class;      ///< kernels::ComputeDescription
  std::int64_t memory_bytes = 0;  ///< of the device, whoever uses it; 0: not known
};

/// HostDevices is a host and the ranks that share its devices.
struct HostDevices {
  std::string host;
  int ranks = 1;
  std::vector<CudaDevice> cuda = {};  ///< that all its ranks have, by ascending index
  std::string trouble = {};           ///< why a device is left out; empty: none is
};

/// WorldDevices are the hosts of all ranks, that of rank 0 first. Empty: every rank has a CPU
/// alone.
using WorldDevices = std::vector<HostDevices>;

/// The error says that a device that a config asks for is not there, or not on every rank.
class NeedsOtherDevices : public FailedPrecondition {
 public:
  NeedsOtherDevices(const std::string& message, Metadata metadata)
      : FailedPrecondition(message, "NEEDS_OTHER_DEVICES", std::move(metadata)) {}
};

/// Tells whether the user left the device to Meshloom.
bool device_is_auto(const v1::RunConfig& given);

/// Fills in run.device, which becomes "cpu", "cuda" or "cuda:N". Throws InvalidArgument for another
/// word, and NeedsOtherDevices where a rank has no such device, or where those of the ranks are of
/// several classes, so that their results would differ; both have the metadata "field".
void resolve_device(v1::RunConfig& config, const WorldDevices& world);

/// Returns what run.device may name beside auto: "cpu", and what every rank has.
std::vector<std::string> offered_devices(const WorldDevices& world);

// --- By run.device of a resolved config, of which nothing is the CPU, as in those of older daemons

/// Returns the device that auto stands for.
std::string default_device(const WorldDevices& world);

/// Tells whether every rank has such a device, and all of one class.
bool has_device(const WorldDevices& world, const std::string& resolved);

/// Tells whether it is a device with memory of its own.
bool has_device_memory(const std::string& resolved);

/// Returns the device of a rank. Throws NeedsOtherDevices if the rank's host has none.
Device device_of_rank(const std::string& resolved, const HostDevices& host, int local_rank);

/// Returns the device of rank 0, which is the CPU if `world` is empty.
Device device_of_rank_zero(const std::string& resolved, const WorldDevices& world);

struct UsedDevice {
  CudaDevice device;
  int ranks = 0;  ///< of the host, that share it
};
/// Returns the devices that the ranks of a host compute on; none if that is the CPU. Throws as
/// device_of_rank.
std::vector<UsedDevice> used_devices(const std::string& resolved, const HostDevices& host);

}  // namespace meshloom::train
