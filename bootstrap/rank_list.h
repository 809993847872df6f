// Names ranks in messages.
#pragma once

#include <string>
#include <vector>

namespace heddle {

/// "rank 3", "ranks 1, 4", or the first sixteen and a count: "ranks 0, 1, ..., 15 and 40 more".
inline std::string rank_list(const std::vector<int>& ranks) {
  constexpr size_t kShown = 16;
  std::string text = ranks.size() == 1 ? "rank" : "ranks";
  for (size_t i = 0; i < ranks.size() && i < kShown; ++i) text += (i ? ", " : " ") + std::to_string(ranks[i]);
  if (ranks.size() > kShown) text += " and " + std::to_string(ranks.size() - kShown) + " more";
  return text;
}

}  // namespace heddle
