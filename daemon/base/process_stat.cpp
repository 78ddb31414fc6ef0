// SPDX-License-Identifier: Apache-2.0
#include "daemon/base/process_stat.h"

#include <fstream>
#include <sstream>

namespace meshloom::base {

std::optional<ProcessStat> read_process_stat(const std::filesystem::path& file) {
  // Where the process goes after its file was opened, iterators of the stream would throw.
  std::string text;
  std::ifstream stream(file);
  std::getline(stream, text, '\0');
  // The second field is the name in brackets, which may hold blanks and brackets itself.
  const auto name_begin = text.find('('), name_end = text.rfind(')');
  if (name_begin == std::string::npos || name_end == std::string::npos) return std::nullopt;
  ProcessStat stat;
  stat.name = text.substr(name_begin + 1, name_end - name_begin - 1);
  std::istringstream fields(text.substr(name_end + 1));
  std::string skipped;
  const auto skip = [&](int count) {
    for (int i = 0; i < count; ++i) fields >> skipped;
  };
  fields >> stat.state >> stat.parent;
  skip(1);  // process group
  fields >> stat.session;
  skip(7);  // from tty_nr to cmajflt
  fields >> stat.user_ticks >> stat.system_ticks;
  skip(6);  // from cutime to itrealvalue
  fields >> stat.start_time;
  if (!fields) return std::nullopt;
  return stat;
}

std::optional<ProcessStat> read_process_stat(pid_t pid) {
  return read_process_stat("/proc/" + std::to_string(pid) + "/stat");
}

}  // namespace meshloom::base
