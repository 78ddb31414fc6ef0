// SPDX-License-Identifier: Apache-2.0
#include "daemon/cli/documentation.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

namespace meshloom::cli {
namespace {

std::string first_line(const std::string& text) { return text.substr(0, text.find('\n')); }

bool is_group(const CLI::App* app) { return app->get_name().empty(); }
bool is_command(const CLI::App* app) { return !app->get_name().empty(); }

void add_options(const CLI::App& app, std::vector<CommandWord>* words) {
  for (const CLI::Option* option : app.get_options()) {
    for (const std::string& name : option->get_lnames())
      words->push_back({"--" + name, first_line(option->get_description())});
    for (const std::string& name : option->get_snames())
      words->push_back({"-" + name, first_line(option->get_description())});
  }
  for (const CLI::App* group : app.get_subcommands(is_group)) add_options(*group, words);
}

void add_commands(const CLI::App& app, const std::string& path,
                  const std::vector<CommandWord>& above, std::vector<CommandEntry>* all) {
  CommandEntry entry{path, {}, {}};
  add_options(app, &entry.options);
  for (const CommandWord& word : above)
    if (std::none_of(entry.options.begin(), entry.options.end(),
                     [&](const CommandWord& own) { return own.word == word.word; }))
      entry.options.push_back(word);
  const auto below = app.get_subcommands(is_command);
  for (const CLI::App* command : below)
    entry.commands.push_back({command->get_name(), first_line(command->get_description())});
  const std::vector<CommandWord> options = entry.options;
  all->push_back(std::move(entry));
  for (const CLI::App* command : below)
    add_commands(*command, path.empty() ? command->get_name() : path + " " + command->get_name(),
                 options, all);
}

std::string joined(const std::vector<CommandWord>& words) {
  std::string text;
  for (const CommandWord& word : words) text += (text.empty() ? "" : " ") + word.word;
  return text;
}

/// Inside single quotes of bash and zsh.
std::string shell_quoted(const std::string& text) {
  std::string safe;
  for (const char c : text) safe += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return "'" + safe + "'";
}

/// Inside single quotes of fish.
std::string fish_quoted(const std::string& text) {
  std::string safe;
  for (const char c : text) {
    if (c == '\'' || c == '\\') safe += '\\';
    safe += c;
  }
  return "'" + safe + "'";
}

/// The shell code that finds the command of a line: all words before the last that are commands.
std::string path_cases(const std::vector<CommandEntry>& entries) {
  std::string patterns;
  for (const CommandEntry& entry : entries)
    if (!entry.path.empty())
      patterns += fmt::format("{}'{}'", patterns.empty() ? "" : "|", entry.path);
  return fmt::format(
      "  for word in \"$@\"; do\n"
      "    case \"${{place:+$place }}$word\" in\n"
      "      {}) place=\"${{place:+$place }}$word\" ;;\n"
      "    esac\n"
      "  done\n",
      patterns);
}

/// A line of roff as it is: no request, and dashes that can be copied.
std::string roff_line(const std::string& line) {
  std::string safe = line.rfind('.', 0) == 0 || line.rfind('\'', 0) == 0 ? "\\&" : "";
  for (const char c : line) {
    if (c == '\\')
      safe += "\\e";
    else if (c == '-')
      safe += "\\-";
    else
      safe += c;
  }
  return safe + "\n";
}

/// `above`: the commands that it stands behind.
void append_help(const CLI::App& app, const std::string& above, std::string* text) {
  const std::string path = above.empty() ? app.get_name() : above + " " + app.get_name();
  *text += fmt::format(".SH \"{}\"\n.nf\n", path);
  const std::string help = app.help(above);
  for (std::size_t begin = 0; begin < help.size();) {
    const std::size_t end = std::min(help.find('\n', begin), help.size());
    *text += roff_line(help.substr(begin, end - begin));
    begin = end + 1;
  }
  *text += ".fi\n";
  for (const CLI::App* command : app.get_subcommands(is_command)) append_help(*command, path, text);
}

}  // namespace

std::vector<CommandEntry> list_commands(const CLI::App& app) {
  std::vector<CommandEntry> all;
  add_commands(app, "", {}, &all);
  return all;
}

std::string bash_completion(const CLI::App& app) {
  const auto entries = list_commands(app);
  std::string text =
      "# bash completion of meshloom; written by: meshloom completion bash\n"
      "_meshloom() {\n"
      "  local place= word words= options= current=\"${COMP_WORDS[COMP_CWORD]}\"\n"
      "  set -- \"${COMP_WORDS[@]:1:COMP_CWORD-1}\"\n" +
      path_cases(entries) + "  case \"$place\" in\n";
  for (const CommandEntry& entry : entries)
    text += fmt::format("    '{}') words='{}' options='{}' ;;\n", entry.path,
                        joined(entry.commands), joined(entry.options));
  return text +
         "  esac\n"
         "  case \"$current\" in\n"
         "    -*) COMPREPLY=($(compgen -W \"$options\" -- \"$current\")) ;;\n"
         "    *) COMPREPLY=($(compgen -W \"$words\" -- \"$current\")) ;;\n"
         "  esac\n"
         "}\n"
         "complete -o default -F _meshloom meshloom\n";
}

std::string zsh_completion(const CLI::App& app) {
  const auto entries = list_commands(app);
  const auto list = [](const std::vector<CommandWord>& words) {
    std::string text;
    for (const CommandWord& word : words) {
      std::string described = word.word;
      described += word.text.empty() ? "" : ":" + word.text;
      text += "\n        " + shell_quoted(described);
    }
    return text;
  };
  std::string text =
      "#compdef meshloom\n"
      "# written by: meshloom completion zsh\n"
      "_meshloom_find() {\n" +
      path_cases(entries) +
      "}\n"
      "_meshloom() {\n"
      "  local place= word\n"
      "  local -a below options\n"
      "  _meshloom_find \"${(@)words[2,CURRENT-1]}\"\n"
      "  case \"$place\" in\n";
  for (const CommandEntry& entry : entries)
    text += fmt::format("    '{}')\n      below=({})\n      options=({}) ;;\n", entry.path,
                        list(entry.commands), list(entry.options));
  return text +
         "  esac\n"
         "  if [[ \"$PREFIX\" == -* ]]; then\n"
         "    _describe option options\n"
         "  elif (( $#below )); then\n"
         "    _describe command below\n"
         "  else\n"
         "    _files\n"
         "  fi\n"
         "}\n"
         // Autoloaded for its first use, or read by hand.
         "if [[ \"$funcstack[1]\" == _meshloom ]]; then\n"
         "  _meshloom \"$@\"\n"
         "else\n"
         "  compdef _meshloom meshloom\n"
         "fi\n";
}

std::string fish_completion(const CLI::App& app) {
  const auto entries = list_commands(app);
  std::vector<std::string> paths;
  for (const CommandEntry& entry : entries)
    if (!entry.path.empty()) paths.push_back(fish_quoted(entry.path));
  std::string text = fmt::format(
      "# fish completion of meshloom; written by: meshloom completion fish\n"
      "function __meshloom_at\n"
      "  set -l path ''\n"
      "  for word in (commandline -opc)[2..-1]\n"
      "    set -l next (string trim -- \"$path $word\")\n"
      "    contains -- \"$next\" {}; and set path $next\n"
      "  end\n"
      "  test \"$path\" = \"$argv[1]\"\n"
      "end\n",
      fmt::join(paths, " "));
  for (const CommandEntry& entry : entries) {
    const std::string at = fish_quoted("__meshloom_at \"" + entry.path + "\"");
    for (const CommandWord& word : entry.commands)
      text += fmt::format("complete -c meshloom -f -n {} -a {} -d {}\n", at, word.word,
                          fish_quoted(word.text));
    for (const CommandWord& word : entry.options) {
      const bool is_long = word.word.rfind("--", 0) == 0;
      text += fmt::format("complete -c meshloom -n {} -{} {} -d {}\n", at, is_long ? "l" : "s",
                          word.word.substr(is_long ? 2 : 1), fish_quoted(word.text));
    }
  }
  return text;
}

std::string manual_page(const CLI::App& app, const std::string& version) {
  // Its description begins with its name, as this line does.
  std::string what = first_line(app.get_description());
  if (what.rfind(app.get_name() + " ", 0) == 0) what.erase(0, app.get_name().size() + 1);
  std::string text = fmt::format(
      ".\\\" Written by: meshloom manual\n"
      ".TH MESHLOOM 1 \"\" \"meshloom {}\" \"User Commands\"\n"
      ".SH NAME\nmeshloom \\- {}",
      version, roff_line(what));
  append_help(app, "", &text);
  return text;
}

}  // namespace meshloom::cli
