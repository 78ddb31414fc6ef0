// SPDX-License-Identifier: Apache-2.0
#include "daemon/command_line/documentation.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cctype>

#include "daemon/command_line/command_list.h"

namespace meshloom::command_line {
namespace {

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
  if (patterns.empty()) return "";
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

std::string bash_completion(const CLI::App& app) {
  const auto entries = list_commands(app);
  std::string text = fmt::format(
      "# bash completion of {0}, made from its parser\n"
      "_{0}() {{\n"
      "  local place= word words= options= current=\"${{COMP_WORDS[COMP_CWORD]}}\"\n"
      "  set -- \"${{COMP_WORDS[@]:1:COMP_CWORD-1}}\"\n{1}  case \"$place\" in\n",
      app.get_name(), path_cases(entries));
  for (const CommandEntry& entry : entries)
    text += fmt::format("    '{}') words='{}' options='{}' ;;\n", entry.path,
                        joined(entry.commands), joined(entry.options));
  return text + fmt::format(
                    "  esac\n"
                    "  case \"$current\" in\n"
                    "    -*) COMPREPLY=($(compgen -W \"$options\" -- \"$current\")) ;;\n"
                    "    *) COMPREPLY=($(compgen -W \"$words\" -- \"$current\")) ;;\n"
                    "  esac\n"
                    "}}\n"
                    "complete -o default -F _{0} {0}\n",
                    app.get_name());
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
  std::string text = fmt::format(
      "#compdef {0}\n"
      "# made from the parser of {0}\n"
      "_{0}_find() {{\n{1}}}\n"
      "_{0}() {{\n"
      "  local place= word\n"
      "  local -a below options\n"
      "  _{0}_find \"${{(@)words[2,CURRENT-1]}}\"\n"
      "  case \"$place\" in\n",
      app.get_name(), path_cases(entries));
  for (const CommandEntry& entry : entries)
    text += fmt::format("    '{}')\n      below=({})\n      options=({}) ;;\n", entry.path,
                        list(entry.commands), list(entry.options));
  return text + fmt::format(
                    "  esac\n"
                    "  if [[ \"$PREFIX\" == -* ]]; then\n"
                    "    _describe option options\n"
                    "  elif (( $#below )); then\n"
                    "    _describe command below\n"
                    "  else\n"
                    "    _files\n"
                    "  fi\n"
                    "}}\n"
                    // Autoloaded for its first use, or read by hand.
                    "if [[ \"$funcstack[1]\" == _{0} ]]; then\n"
                    "  _{0} \"$@\"\n"
                    "else\n"
                    "  compdef _{0} {0}\n"
                    "fi\n",
                    app.get_name());
}

std::string fish_completion(const CLI::App& app) {
  const auto entries = list_commands(app);
  const std::string& program = app.get_name();
  std::vector<std::string> paths;
  for (const CommandEntry& entry : entries)
    if (!entry.path.empty()) paths.push_back(fish_quoted(entry.path));
  std::string text = fmt::format(
      "# fish completion of {0}, made from its parser\n"
      "function __{0}_at\n"
      "  set -l path ''\n"
      "  for word in (commandline -opc)[2..-1]\n"
      "    set -l next (string trim -- \"$path $word\")\n"
      "    contains -- \"$next\" {1}; and set path $next\n"
      "  end\n"
      "  test \"$path\" = \"$argv[1]\"\n"
      "end\n",
      program, fmt::join(paths, " "));
  for (const CommandEntry& entry : entries) {
    const std::string at = fish_quoted(fmt::format("__{}_at \"{}\"", program, entry.path));
    for (const CommandWord& word : entry.commands)
      text += fmt::format("complete -c {} -f -n {} -a {} -d {}\n", program, at, word.word,
                          fish_quoted(word.text));
    for (const CommandWord& word : entry.options) {
      const bool is_long = word.word.rfind("--", 0) == 0;
      text += fmt::format("complete -c {} -n {} -{} {} -d {}\n", program, at, is_long ? "l" : "s",
                          word.word.substr(is_long ? 2 : 1), fish_quoted(word.text));
    }
  }
  return text;
}

std::string completion(const CLI::App& app, const std::string& shell) {
  return shell == "bash"  ? bash_completion(app)
         : shell == "zsh" ? zsh_completion(app)
                          : fish_completion(app);
}

std::string manual_page(const CLI::App& app, const std::string& version) {
  // Its description begins with its name, as this line does.
  std::string what = app.get_description();
  what.resize(std::min(what.find('\n'), what.size()));
  if (what.rfind(app.get_name() + " ", 0) == 0) what.erase(0, app.get_name().size() + 1);
  std::string title = app.get_name();
  for (char& c : title) c = static_cast<char>(std::toupper(static_cast<unsigned char>(c)));
  std::string text = fmt::format(
      ".\\\" Made from the parser of {0}\n"
      ".TH {1} 1 \"\" \"{0} {2}\" \"User Commands\"\n"
      ".SH NAME\n{0} \\- {3}",
      app.get_name(), title, version, roff_line(what));
  append_help(app, "", &text);
  return text;
}

}  // namespace meshloom::command_line
