// SPDX-License-Identifier: Apache-2.0
#include "daemon/comm/mesh/mpi_environment.h"

#include <cstdlib>

#include "kernels/base/error.h"

namespace meshloom::comm {
namespace {

/// Open MPI 5 takes vader as another name of its sm; Open MPI 4 ends with an error for sm.
constexpr const char* kWithinAHost = "self,vader";

/// Whether all ranks are on this host, as the launcher tells; nothing if it does not.
std::optional<bool> on_one_host(const EnvironmentLookup& variable) {
  const auto all = variable("OMPI_COMM_WORLD_SIZE");
  const auto local = variable("OMPI_COMM_WORLD_LOCAL_SIZE");
  if (all && local) return all == local;
  if (!launched_by_mpirun(variable)) return true;
  // A step of Slurm. Its variables also reach the ranks of a launcher that was started inside one,
  // if they say nothing of the ranks.
  const bool slurm = variable("PMIX_NAMESPACE").value_or("").starts_with("slurm.pmix.") ||
                     (variable("PMI_RANK") && !variable("PMIX_RANK"));
  const auto hosts = variable("SLURM_STEP_NUM_NODES");
  if (slurm && hosts) return hosts == "1";
  return std::nullopt;
}

}  // namespace

EnvironmentLookup process_environment() {
  return [](const std::string& name) -> std::optional<std::string> {
    const char* value = std::getenv(name.c_str());
    return value == nullptr ? std::nullopt : std::optional<std::string>(value);
  };
}

bool launched_by_mpirun(const EnvironmentLookup& variable) {
  for (const char* name : {"OMPI_COMM_WORLD_SIZE", "PMIX_RANK", "PMI_RANK"})
    if (variable(name)) return true;
  return false;
}

std::map<std::string, std::string> mpi_defaults(const EnvironmentLookup& variable,
                                                const std::string& interface) {
  std::map<std::string, std::string> defaults;
  const auto set = [&](const std::string& name, const std::string& value) {
    if (!variable(name)) defaults[name] = value;
  };
  // Point-to-point over the plain transports: probing for fabrics costs start-up time.
  set("OMPI_MCA_pml", "ob1");
  const std::optional<bool> one_host = on_one_host(variable);
  if (one_host.value_or(false) || interface == "none") {
    set("OMPI_MCA_btl", kWithinAHost);
    return defaults;
  }
  if (!interface.empty()) {
    set("OMPI_MCA_btl_tcp_if_include", interface);
    return defaults;
  }
  for (const char* name : {"OMPI_MCA_btl", "OMPI_MCA_btl_tcp_if_include"})
    if (variable(name)) return defaults;
  throw InvalidArgument(
      fmt::format(
          "{}, and MPI's traffic between hosts is neither encrypted nor authenticated: name "
          "the interface of a closed network, by --mpi-interface of meshloomd (\"eth1\", "
          "\"10.0.0.0/24\"; \"none\" where all ranks are on one host) or by mpirun --mca "
          "btl_tcp_if_include",
          one_host ? "the ranks are on several hosts"
                   : "the launcher does not tell whether all ranks are on one host"),
      "MPI_INTERFACE_MISSING", {{"field", "mpi_interface"}});
}

std::string quiet_variable(const EnvironmentLookup& variable) {
  for (const char* name : {"OMPI_MCA_orte_execute_quiet", "PRTE_MCA_prte_execute_quiet"}) {
    const std::string value = variable(name).value_or("");
    if (!value.empty() && value != "0" && value != "false") return name;
  }
  return {};
}

}  // namespace meshloom::comm
