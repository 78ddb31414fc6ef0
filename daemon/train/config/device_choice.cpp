// SPDX-License-Identifier: Apache-2.0
#include "daemon/train/config/device_choice.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <optional>

#include "daemon/base/field_error.h"

namespace meshloom::train {
namespace {

constexpr const char* kDeviceField = "run.device";
constexpr const char* kCpuWord = "cpu";
constexpr const char* kCudaWord = "cuda";
constexpr const char* kAutoWord = "auto";

/// What a word other than auto names.
struct NamedDevice {
  DeviceKind kind = DeviceKind::kCpu;
  std::optional<int> index = std::nullopt;  ///< of cuda; nothing: one for each rank
};

/// Digits alone, and no others than those that the number is written with.
std::optional<int> read_device_index(std::string_view text) {
  const bool padded = text.size() > 1 && text.front() == '0';
  const bool digits = !text.empty() && std::all_of(text.begin(), text.end(),
                                                   [](char c) { return c >= '0' && c <= '9'; });
  int index = 0;
  if (padded || !digits ||
      std::from_chars(text.data(), text.data() + text.size(), index).ec != std::errc())
    return std::nullopt;
  return index;
}

NamedDevice read_device(const std::string& word) {
  constexpr std::string_view kNumbered = "cuda:";
  if (word.empty() || word == kCpuWord) return {};
  if (word == kCudaWord) return {DeviceKind::kCuda};
  if (word.starts_with(kNumbered))
    if (const auto index = read_device_index(std::string_view(word).substr(kNumbered.size())))
      return {DeviceKind::kCuda, index};
  base::refuse_field(
      kDeviceField,
      "must be auto, cpu, cuda or cuda:N, where N is the index of a device, got \"{}\"", word);
}

std::string cuda_name(const CudaDevice& device) {
  return to_string(Device{DeviceKind::kCuda, device.index});
}

const CudaDevice* find_index(const HostDevices& host, int index) {
  const auto found = std::find_if(host.cuda.begin(), host.cuda.end(),
                                  [&](const CudaDevice& item) { return item.index == index; });
  return found == host.cuda.end() ? nullptr : &*found;
}

/// Null if the host has no such device.
const CudaDevice* find_for_rank(const NamedDevice& named, const HostDevices& host, int local_rank) {
  if (named.index) return find_index(host, *named.index);
  if (host.cuda.empty()) return nullptr;
  return &host.cuda[static_cast<std::size_t>(local_rank) % host.cuda.size()];
}

/// Of a cuda device.
bool all_have(const NamedDevice& named, const WorldDevices& world) {
  return !world.empty() && std::all_of(world.begin(), world.end(), [&](const HostDevices& host) {
    return find_for_rank(named, host, 0) != nullptr;
  });
}

std::string devices_text(const HostDevices& host) {
  std::vector<std::string> names;
  for (const CudaDevice& device : host.cuda) names.push_back(cuda_name(device));
  return fmt::format("{}{}",
                     names.empty() ? "no cuda device" : fmt::format("{}", fmt::join(names, ", ")),
                     host.trouble.empty() ? "" : " (" + host.trouble + ")");
}

[[noreturn]] void refuse_missing(const std::string& word, const NamedDevice& named,
                                 const HostDevices* host) {
  const std::string wanted = named.index ? "device " + word : "a cuda device";
  const std::string there =
      host ? fmt::format("host {} of {} {} has {}", host->host, host->ranks,
                         host->ranks == 1 ? "rank" : "ranks", devices_text(*host))
           : std::string("the daemon's ranks have none");
  Error::Metadata metadata = {{"field", kDeviceField}, {"device", word}};
  if (host) metadata["host"] = host->host;
  throw NeedsOtherDevices(fmt::format("{}: \"{}\" needs {} on the host of every rank, but {}; auto "
                                      "takes what every rank has",
                                      kDeviceField, word, wanted, there),
                          std::move(metadata));
}

/// Where a rank computes on a device of another class than rank 0.
struct OtherClass {
  const HostDevices* host = nullptr;
  CudaDevice device = {};
};

/// Of a world in which all ranks have what is named; nothing if all are of one class.
std::optional<OtherClass> find_other_class(const std::string& resolved, const WorldDevices& world) {
  const CudaDevice first = used_devices(resolved, world.front()).front().device;
  for (const HostDevices& host : world)
    for (const UsedDevice& used : used_devices(resolved, host))
      if (used.device.compute_class != first.compute_class) return OtherClass{&host, used.device};
  return std::nullopt;
}

/// `resolved`: what the user's word means.
[[noreturn]] void refuse_classes(const std::string& word, const std::string& resolved,
                                 const HostDevices& first, const OtherClass& other) {
  const auto text = [](const HostDevices& host, const CudaDevice& device) {
    return fmt::format("{} of host {} is of class {}", cuda_name(device), host.host,
                       device.compute_class);
  };
  throw NeedsOtherDevices(
      fmt::format("{}: \"{}\" needs devices of one class on all ranks, but {}, and {}; give cuda:N "
                  "of a device that is alike on every host, or cpu",
                  kDeviceField, word, text(first, used_devices(resolved, first).front().device),
                  text(*other.host, other.device)),
      {{"field", kDeviceField}, {"device", word}, {"host", other.host->host}});
}

}  // namespace

bool device_is_auto(const v1::RunConfig& given) {
  return given.device().empty() || given.device() == kAutoWord;
}

void resolve_device(v1::RunConfig& config, const WorldDevices& world) {
  const std::string word = device_is_auto(config) ? kAutoWord : config.device();
  const std::string resolved = word == kAutoWord ? default_device(world) : word;
  const NamedDevice named = read_device(resolved);
  config.set_device(resolved);
  if (named.kind == DeviceKind::kCpu) return;
  if (world.empty()) refuse_missing(word, named, nullptr);
  for (const HostDevices& host : world)
    if (!find_for_rank(named, host, 0)) refuse_missing(word, named, &host);
  if (const auto other = find_other_class(resolved, world))
    refuse_classes(word, resolved, world.front(), *other);
}

std::vector<std::string> offered_devices(const WorldDevices& world) {
  std::vector<std::string> names = {kCpuWord, kCudaWord};
  if (!world.empty())
    for (const CudaDevice& device : world.front().cuda) names.push_back(cuda_name(device));
  std::erase_if(names, [&](const std::string& name) { return !has_device(world, name); });
  return names;
}

std::string default_device(const WorldDevices& world) {
  return all_have({DeviceKind::kCuda}, world) ? kCudaWord : kCpuWord;
}

bool has_device(const WorldDevices& world, const std::string& resolved) {
  const NamedDevice named = read_device(resolved);
  if (named.kind == DeviceKind::kCpu) return true;
  return all_have(named, world) && !find_other_class(resolved, world);
}

bool has_device_memory(const std::string& resolved) {
  return read_device(resolved).kind != DeviceKind::kCpu;
}

Device device_of_rank(const std::string& resolved, const HostDevices& host, int local_rank) {
  const NamedDevice named = read_device(resolved);
  if (named.kind == DeviceKind::kCpu) return kCpuDevice;
  const CudaDevice* device = find_for_rank(named, host, local_rank);
  if (!device) refuse_missing(resolved, named, &host);
  return {DeviceKind::kCuda, device->index};
}

Device device_of_rank_zero(const std::string& resolved, const WorldDevices& world) {
  return world.empty() ? kCpuDevice : device_of_rank(resolved, world.front(), 0);
}

std::vector<UsedDevice> used_devices(const std::string& resolved, const HostDevices& host) {
  const NamedDevice named = read_device(resolved);
  std::vector<UsedDevice> used;
  for (int rank = 0; rank < host.ranks; ++rank) {
    const CudaDevice* device = find_for_rank(named, host, rank);
    if (!device) refuse_missing(resolved, named, &host);
    const auto known = std::find_if(used.begin(), used.end(), [&](const UsedDevice& item) {
      return item.device.index == device->index;
    });
    if (known == used.end())
      used.push_back({*device, 1});
    else
      ++known->ranks;
  }
  return used;
}

}  // namespace meshloom::train
