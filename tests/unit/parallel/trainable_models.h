// SPDX-License-Identifier: Apache-2.0
// Small random models of unlike shapes, whose losses are sums over samples.
#pragma once

#include <random>

#include "daemon/nn/models/model.h"
#include "daemon/parallel/parallelize_model.h"
#include "daemon/tensor/ops/elementwise.h"
#include "daemon/tensor/ops/matmul.h"
#include "daemon/tensor/ops/norm.h"
#include "daemon/tensor/ops/reduce.h"
#include "daemon/tensor/ops/shape.h"
#include "tests/support/random_tensor.h"
#include "tests/unit/nn/model_test_support.h"

namespace meshloom::parallel::test {

/// A model whose loss is a sum over samples.
class Trainable {
 public:
  virtual ~Trainable() = default;
  virtual std::vector<nn::NamedParameter> parameters() = 0;
  virtual Tensor loss(std::int64_t first_sample, std::int64_t samples) = 0;
};

inline constexpr std::int64_t kMostSamples = 9;

class Transformer final : public Trainable {
 public:
  /// `sequence`: the ranks that share its sequences.
  Transformer(ExecutionContext& context, std::mt19937_64& random, comm::ProcessGroup& sequence) {
    nn::ModelConfig config = kinds()[random() % 3];
    config.num_layers = static_cast<std::int64_t>(1 + random() % 6);
    mode_ = static_cast<nn::ActivationCheckpoint>(random() % 3);
    model_ = meshloom::testing::make_random_model(context, config);
    const auto seed = static_cast<std::uint32_t>(random());
    ids_ = meshloom::testing::random_ids(context, kMostSamples, 7, config.vocab_size, seed);
    labels_ = meshloom::testing::random_ids(context, kMostSamples, 7, config.vocab_size, seed + 1);
    if (sequence.size() == 1) return;
    mesh_ = std::make_unique<dtensor::DeviceMesh>(sequence,
                                                  planner::MeshLayout({{"cp", sequence.size()}}));
    parallel_ = std::make_unique<ParallelModel>(*model_, mesh_.get(), planner::ParallelPlan{});
  }

  std::vector<nn::NamedParameter> parameters() override {
    return parallel_ ? parallel_->named_local_parameters() : model_->named_parameters();
  }

  Tensor loss(std::int64_t first, std::int64_t samples) override {
    nn::Batch batch;
    batch.input_ids = ops::contiguous(ops::slice(ids_, 0, first, first + samples));
    batch.labels = ops::contiguous(ops::slice(labels_, 0, first, first + samples));
    batch.labels_shifted = true;
    nn::ForwardOptions options;
    options.training = true;
    options.first_sample = static_cast<std::uint64_t>(first);
    options.activation_checkpoint = mode_;
    return model_->loss(batch, 0.01f, options);
  }

 private:
  static std::vector<nn::ModelConfig> kinds() {
    return {meshloom::testing::tiny_gpt2(), meshloom::testing::tiny_llama(),
            meshloom::testing::tiny_bert()};
  }

  nn::ActivationCheckpoint mode_;
  std::unique_ptr<nn::Model> model_;
  std::unique_ptr<dtensor::DeviceMesh> mesh_;
  std::unique_ptr<ParallelModel> parallel_;
  Tensor ids_, labels_;
};

/// Block k computes norm_k(x_(k-1) A_k + x_j B_k) with any earlier j: the gradient of B_k makes
/// x_j again from norm_j, so backward touches blocks far before their turn. Some blocks have a
/// parameter that nothing uses.
class Skips final : public Trainable {
 public:
  Skips(ExecutionContext& context, std::mt19937_64& random) {
    const auto blocks = 2 + random() % 9;
    input_ =
        meshloom::test::random_tensor(context, {kMostSamples, kWidth}, random, DType::kFloat32);
    add("head.weight", context, {1, kWidth}, random);
    for (std::size_t k = 0; k < blocks; ++k) {
      const std::string prefix = fmt::format("net.{}.", k);
      from_.push_back(k == 0 ? 0 : random() % k);
      add(prefix + "a", context, {kWidth, kWidth}, random);
      add(prefix + "b", context, {kWidth, kWidth}, random);
      add(prefix + "norm", context, {kWidth}, random);
      if (random() % 4 == 0) add(prefix + "unused", context, {kWidth}, random);
    }
  }

  std::vector<nn::NamedParameter> parameters() override {
    std::vector<nn::NamedParameter> named;
    for (auto& [name, parameter] : parameters_) named.push_back({name, parameter.get()});
    return named;
  }

  Tensor loss(std::int64_t first, std::int64_t samples) override {
    const Tensor input = ops::contiguous(ops::slice(input_, 0, first, first + samples));
    std::vector<Tensor> x;
    for (std::size_t k = 0; k < from_.size(); ++k) {
      const std::string prefix = fmt::format("net.{}.", k);
      const Tensor near = ops::linear(k == 0 ? input : x.back(), value(prefix + "a"), Tensor());
      const Tensor far = ops::linear(k == 0 ? input : x[from_[k]], value(prefix + "b"), Tensor());
      x.push_back(ops::rms_norm(ops::add(near, far), value(prefix + "norm"), 1e-5f));
    }
    return ops::sum(ops::linear(x.back(), value("head.weight"), Tensor()));
  }

 private:
  static constexpr std::int64_t kWidth = 10;

  void add(const std::string& name, ExecutionContext& context, const Shape& shape,
           std::mt19937_64& random) {
    auto parameter = std::make_unique<nn::Parameter>();
    parameter->value = meshloom::test::random_tensor(context, shape, random, DType::kFloat32);
    parameter->value.set_requires_grad(true);
    parameters_.emplace_back(name, std::move(parameter));
  }
  const Tensor& value(const std::string& name) const {
    for (const auto& [n, parameter] : parameters_)
      if (n == name) return parameter->value;
    throw std::logic_error(name);
  }

  Tensor input_;
  std::vector<std::size_t> from_;
  std::vector<std::pair<std::string, std::unique_ptr<nn::Parameter>>> parameters_;
};

}  // namespace meshloom::parallel::test
