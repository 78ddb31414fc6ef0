// SPDX-License-Identifier: Apache-2.0
// Uses: who uses what clients may remove.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "daemon/control/host/hold.h"
#include "daemon/control/stores/journaled_store.h"

namespace meshloom::control {

/// Every removal asks here. A user holds what it reads, or what it needs until that can be seen in
/// a store, or it is a job, a run or a model that is stored, whose config names what it needs.
/// Shared by the stores of a daemon; any thread may call any method. Resources go by their whole
/// names ("models/NAME", "checkpoints/JOB/FOLDER").
class Uses {
 public:
  /// The whole name of a resource of one kind that has not ended and whose config passes a test.
  using FindConfig = std::function<std::optional<std::string>(const ConfigTest& test)>;
  /// A kind without one is not looked through.
  struct Configs {
    FindConfig jobs = {}, runs = {}, models = {};
  };
  Uses() = default;
  explicit Uses(Configs configs) : configs_(std::move(configs)) {}

  /// `user` uses the resource until the result is let go, which may outlive this; whoever is
  /// refused a removal is told the text. Whether the resource is there is for the caller to say.
  Hold hold(const std::string& name, const std::string& user) const;
  /// The user that has held the resource longest, or one whose name begins with `prefix`.
  std::optional<std::string> holder_of(const std::string& name) const;
  std::optional<std::string> holder_below(const std::string& prefix) const;
  /// All users that hold it, as often as they do.
  std::vector<std::string> holders_of(const std::string& name) const;

  /// The first job, run or model whose config passes. Takes the mutexes of their stores.
  std::optional<std::string> config_of(const ConfigTest& test) const;
  /// The same beside jobs, for the store of jobs, which holds its mutex. The test may ask no file
  /// system.
  std::optional<std::string> config_beside_jobs(const ConfigTest& test) const;
  /// The first whose config names a model or a plan. Ids are names without "models/", "plans/".
  std::optional<std::string> config_with_model(const std::string& id) const;
  std::optional<std::string> config_with_plan(const std::string& id) const;

  /// The answer for a model and a plan: who holds it, else whose config names it. In this order,
  /// since who submits a job holds them until the job can be seen.
  std::optional<std::string> user_of_model(const std::string& id) const;
  std::optional<std::string> user_of_plan(const std::string& id) const;

 private:
  struct State {
    std::mutex mutex;  ///< no other is taken with it held
    std::multimap<std::string, std::string> users;
  };
  const Configs configs_;
  const std::shared_ptr<State> state_ = std::make_shared<State>();
};

}  // namespace meshloom::control
