// SPDX-License-Identifier: Apache-2.0
#include "daemon/nn/module.h"

#include <xxhash.h>

#include "kernels/base/error.h"

namespace meshloom::nn {

Parameter& Module::register_parameter(const std::string& name, const Shape& shape, DType dtype,
                                      Init init) {
  auto parameter = std::make_unique<Parameter>();
  parameter->value = context_.defer_parameters() ? deferred(context_, shape, dtype)
                                                 : empty(context_, shape, dtype);
  parameter->value.set_requires_grad(true);
  parameter->init = init;
  entries_.push_back({name, std::move(parameter), nullptr});
  return *entries_.back().parameter;
}

void Module::register_module(const std::string& name, Module& child) {
  entries_.push_back({name, nullptr, &child});
}

std::vector<NamedParameter> Module::named_parameters() {
  std::vector<NamedParameter> out;
  collect("", out);
  return out;
}

std::vector<NamedModule> Module::named_modules() {
  std::vector<NamedModule> out;
  collect("", out);
  return out;
}

std::vector<NamedParameter> Module::own_parameters() {
  std::vector<NamedParameter> out;
  for (Entry& entry : entries_)
    if (entry.parameter) out.push_back({entry.name, entry.parameter.get()});
  return out;
}

void Module::collect(const std::string& name, std::vector<NamedModule>& out) {
  out.push_back({name, this});
  for (Entry& entry : entries_)
    if (entry.child) entry.child->collect(name.empty() ? entry.name : name + "." + entry.name, out);
}

void Module::collect(const std::string& prefix, std::vector<NamedParameter>& out) {
  for (Entry& entry : entries_) {
    if (entry.parameter)
      out.push_back({prefix + entry.name, entry.parameter.get()});
    else
      entry.child->collect(prefix + entry.name + ".", out);
  }
}

PhiloxStream parameter_stream(const std::string& name, std::uint64_t seed) {
  return {seed, XXH3_64bits(name.data(), name.size())};
}

void initialize_tensor(const Tensor& dst, const std::string& name, const Init& init,
                       std::uint64_t seed) {
  ExecutionContext& context = dst.context();
  kernels::Backend& backend = context.backend();
  const kernels::KernelContext& kernel_context = context.kernel_context();
  check(dst.contiguous(), "initialize: parameter {} is not contiguous", name);
  switch (init.kind) {
    case Init::Kind::kZeros: backend.fill(kernel_context, dst.view(), 0.0); return;
    case Init::Kind::kOnes: backend.fill(kernel_context, dst.view(), 1.0); return;
    case Init::Kind::kNormal: break;
  }
  backend.fill_normal(kernel_context, dst.view(), parameter_stream(name, seed), 0, 0.0f, init.std);
  if (init.zero_row < 0) return;
  const TensorView all = dst.view();
  const std::int64_t width = all.numel() / all.size(0);
  auto* row = static_cast<std::byte*>(all.data) +
              static_cast<std::size_t>(init.zero_row * width) * dtype_size(all.dtype);
  backend.fill(kernel_context, make_view(row, all.dtype, {width}, all.device), 0.0);
}

void initialize_parameters(Module& module, std::uint64_t seed) {
  for (const NamedParameter& p : module.named_parameters())
    initialize_tensor(p.parameter->value, p.name, p.parameter->init, seed);
}

}  // namespace meshloom::nn
