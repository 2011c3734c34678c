#include "settings.h"

#include <string_view>

#include "text.h"

namespace shift::ctl {

std::vector<Setting> settings_of(const Process& process) {
  std::vector<Setting> settings;
  std::string_view left = state::text_of(process.record.settings);
  while (!left.empty()) {
    const size_t end = left.find('\n');
    const std::string_view line = left.substr(0, end);
    left = end == std::string_view::npos ? std::string_view{} : left.substr(end + 1);
    const size_t equals = line.find('=');
    const size_t tab = line.rfind('\t');
    if (equals == std::string_view::npos || tab == std::string_view::npos || tab < equals) continue;
    settings.push_back({text_safe(line.substr(0, equals)),
                        text_safe(line.substr(equals + 1, tab - equals - 1)),
                        text_safe(line.substr(tab + 1))});
  }
  return settings;
}

std::string settings_text(const std::vector<Setting>& settings) {
  std::vector<std::vector<std::string>> rows{{"KEY", "VALUE", "FROM"}};
  for (const Setting& setting : settings)
    rows.push_back({setting.name, setting.value, setting.source});
  return table(rows);
}

}  // namespace shift::ctl
