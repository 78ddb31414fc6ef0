// SPDX-License-Identifier: Apache-2.0
#include "planner/estimate/model_shape.h"

#include "kernels/base/error.h"

namespace meshloom::planner {

double seen_positions(const ModelShape& model, std::int64_t sequence) {
  const auto length = static_cast<double>(sequence);
  if (!model.causal) return length;
  if (model.windowed_layers == 0 || model.window >= sequence) return 0.5 * length;
  const auto window = static_cast<double>(model.window);
  const double windowed =
      static_cast<double>(model.windowed_layers) / static_cast<double>(model.layers);
  return windowed * (window - 0.5 * window * window / length) + (1.0 - windowed) * 0.5 * length;
}

void check_model_shape(const ModelShape& m) {
  const auto positive = [](const char* name, std::int64_t value) {
    if (value < 1)
      throw InvalidArgument(fmt::format("model: {} is {}, expected at least 1", name, value));
  };
  positive("layers", m.layers);
  positive("hidden", m.hidden);
  positive("heads", m.heads);
  positive("kv_heads", m.kv_heads);
  positive("head_dim", m.head_dim);
  positive("vocab", m.vocab);
  positive("positions", m.positions);
  if (m.windowed_layers > 0) positive("window", m.window);
  if (m.windowed_layers < 0 || m.windowed_layers > m.layers)
    throw InvalidArgument(
        fmt::format("model: {} of {} layers have windows", m.windowed_layers, m.layers));
  if (m.heads % m.kv_heads != 0)
    throw InvalidArgument(
        fmt::format("model: {} kv_heads do not divide {} heads", m.kv_heads, m.heads));
}

}  // namespace meshloom::planner
