// SPDX-License-Identifier: Apache-2.0
// Comparing what a case gave with what it expects. Every function returns an empty text where all
// is well, else what differs.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "tests/conformance/case.h"

namespace meshloom::conformance {

/// Every expected tensor of the file ("out.*", "grad.*", "param_after.*") against results.
std::string compare_tensors(const Case&, const TensorFile&, ExecutionContext&, const CaseResults&);

/// What every rank reports beside tensors, in rank order.
struct RankFacts {
  std::map<std::string, Shape> local_shapes;
  std::map<std::string, CommCounts> comm;
  std::map<std::string, std::int64_t> bytes_sent;
};
std::string compare_facts(const Expect&, const CaseResults&, std::span<const RankFacts> ranks);

std::string pack_facts(const CaseResults&);
RankFacts unpack_facts(const std::string& bytes);

}  // namespace meshloom::conformance
