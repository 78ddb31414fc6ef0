// SPDX-License-Identifier: Apache-2.0
// Names that two options of one command share: CLI11 2.4 refuses them when the parser is made, for
// every command of the program, while 2.1 takes them without a word.
#pragma once

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <map>
#include <string>
#include <vector>

namespace meshloom::test {

/// One text for each name, dashes taken off and positionals included, that two options have which
/// are understood after the same command: "meshloom job resume: name and --name".
class SharedOptionNames {
 public:
  static std::vector<std::string> of(const CLI::App& app) {
    SharedOptionNames names;
    names.look_at(app, app.get_name(), {});
    return names.shared_;
  }

 private:
  using Named = std::map<std::string, const CLI::Option*>;

  /// `known`: the options of the commands above, which are understood after this one too.
  void look_at(const CLI::App& command, const std::string& path, Named known) {
    add_options(command, path, known);
    for (const CLI::App* below : command.get_subcommands(is_command))
      look_at(*below, path + " " + below->get_name(), known);
  }

  void add_options(const CLI::App& command, const std::string& path, Named& known) {
    for (const CLI::Option* option : command.get_options()) {
      // Every command has a help flag of its own.
      if (option == command.get_help_ptr()) continue;
      std::vector<std::string> names = option->get_lnames();
      names.insert(names.end(), option->get_snames().begin(), option->get_snames().end());
      if (option->get_positional()) names.push_back(option->get_name(true));
      for (const std::string& name : names) {
        const auto [found, fresh] = known.try_emplace(name, option);
        if (!fresh && found->second != option)
          shared_.push_back(fmt::format("{}: {} and {}", path, found->second->get_name(true, true),
                                        option->get_name(true, true)));
      }
    }
    for (const CLI::App* group : command.get_subcommands(is_group))
      add_options(*group, path, known);
  }

  static bool is_command(const CLI::App* app) { return !app->get_name().empty(); }
  static bool is_group(const CLI::App* app) { return app->get_name().empty(); }

  std::vector<std::string> shared_;
};

}  // namespace meshloom::test
