// SPDX-License-Identifier: Apache-2.0
// What Open MPI is told before MPI_Init, through its environment: the defaults of every program
// that uses MPI.
#pragma once

#include <functional>
#include <map>
#include <optional>
#include <string>

namespace meshloom::comm {

/// EnvironmentLookup gives the value of an environment variable, if it is set.
using EnvironmentLookup = std::function<std::optional<std::string>(const std::string& name)>;
EnvironmentLookup process_environment();

/// Tells whether mpirun or another launcher (srun, prterun; PMI or PMIx) says that it started this
/// process. Used for the warning about a lone rank, to decide whether `--local-ranks` makes sense
/// and for the default below; never for locality.
bool launched_by_mpirun(const EnvironmentLookup& = process_environment());

/// Returns the Open MPI parameters (OMPI_MCA_...) to set, without those that the user has set:
/// variables, also by `mpirun --mca` and `--omca`, win over these, and these win over files of
/// parameters.
///
/// Open MPI's tcp transport listens on every interface of each rank, from port 1024 up, and
/// believes whoever connects. If the launcher says that all ranks are on one host, or if
/// there is no launcher, it is left out. Over several hosts, or if the launcher tells nothing,
/// `interface` must name the one that MPI's traffic takes: a name such as "eth1", a subnet such as
/// "10.0.0.0/24", or "none" if all ranks are on one host after all. Throws InvalidArgument
/// (MPI_INTERFACE_MISSING) if it is empty and the user has chosen neither transports nor
/// interface.
std::map<std::string, std::string> mpi_defaults(const EnvironmentLookup&,
                                                const std::string& interface);

/// Returns the variable by which mpirun is told to be quiet; empty if there is none. It hides also
/// why MPI_Init, which ends the process when it fails, could not start MPI.
std::string quiet_variable(const EnvironmentLookup&);

}  // namespace meshloom::comm
