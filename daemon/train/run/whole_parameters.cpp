// SPDX-License-Identifier: Apache-2.0
#include "daemon/train/run/whole_parameters.h"

#include <fmt/ranges.h>

#include <bit>
#include <cmath>
#include <cstring>
#include <set>

#include "daemon/base/field_error.h"

namespace meshloom::train {
namespace {

static_assert(std::endian::native == std::endian::little, "values travel in little-endian order");

constexpr const char* kDType = "float32";

/// Index of the parameter `name`, which `field` gives.
std::size_t find_parameter(ModelState& state, const std::string& name, const std::string& field) {
  const auto& parameters = state.optimizer().parameters();
  for (std::size_t i = 0; i < parameters.size(); ++i)
    if (parameters[i].name == name) return i;
  throw NotFound(fmt::format("{}: the model has no parameter \"{}\"", field, name), "NOT_FOUND",
                 {{"field", field}, {"parameter", name}});
}

void check_value(const v1::ParameterValue& value, const Shape& shape, const std::string& path) {
  if (value.dtype() != kDType)
    base::refuse_field(path + ".dtype", "must be {}, got \"{}\"", kDType, value.dtype());
  const std::vector<std::int64_t> sizes(value.shape().begin(), value.shape().end());
  if (sizes != std::vector<std::int64_t>(shape.begin(), shape.end()))
    base::refuse_field(path + ".shape", "is [{}], the shape of {} is {}", fmt::join(sizes, ", "),
                       value.name(), shape);
  const auto bytes = static_cast<std::size_t>(numel(shape)) * sizeof(float);
  if (value.data().size() != bytes)
    base::refuse_field(path + ".data", "has {} bytes, {} of shape {} has {}", value.data().size(),
                       value.name(), shape, bytes);
  for (std::size_t i = 0; i < bytes / sizeof(float); ++i) {
    float element = 0.0f;
    std::memcpy(&element, value.data().data() + i * sizeof element, sizeof element);
    if (!std::isfinite(element))
      base::refuse_field(path + ".data", "element {} of {} is {}, not a finite number", i,
                         value.name(), element);
  }
}

}  // namespace

std::vector<v1::ParameterValue> whole_parameters(ModelState& state,
                                                 const std::vector<std::string>& names) {
  std::vector<std::size_t> indices;
  for (std::size_t n = 0; n < names.size(); ++n)
    indices.push_back(find_parameter(state, names[n], fmt::format("names[{}]", n)));
  std::vector<v1::ParameterValue> values;
  for (const std::size_t i : indices) {
    const Tensor whole = state.gather(state.optimizer().master(i).detach(), i);
    if (!whole) continue;
    v1::ParameterValue& value = values.emplace_back();
    value.set_name(state.optimizer().parameters()[i].name);
    value.set_dtype(kDType);
    for (int d = 0; d < whole.ndim(); ++d) value.add_shape(whole.size(d));
    std::string& data = *value.mutable_data();
    data.resize(static_cast<std::size_t>(whole.numel()) * sizeof(float));
    ExecutionContext& context = whole.context();
    context.backend().copy_to_host(context.kernel_context(),
                                   make_view(data.data(), DType::kFloat32, whole.shape()),
                                   whole.view());
  }
  return values;
}

void set_whole_parameters(ModelState& state, const std::vector<v1::ParameterValue>& values,
                          const std::function<void()>& before_write) {
  std::vector<std::size_t> indices;
  std::set<std::string> seen;
  for (std::size_t v = 0; v < values.size(); ++v) {
    const std::string path = fmt::format("parameters[{}]", v);
    if (!seen.insert(values[v].name()).second)
      base::refuse_field(path + ".name", "\"{}\" is given twice", values[v].name());
    indices.push_back(find_parameter(state, values[v].name(), path + ".name"));
    check_value(values[v], state.specs()[indices.back()]->shape(), path);
  }
  before_write();
  HostBlocks blocks(state.model().context());
  for (std::size_t v = 0; v < values.size(); ++v) {
    // The copy only reads.
    void* data = const_cast<char*>(values[v].data().data());
    state.set(indices[v], make_view(data, DType::kFloat32, state.specs()[indices[v]]->shape()),
              blocks);
  }
  state.optimizer().refresh_working_copies();
}

}  // namespace meshloom::train
