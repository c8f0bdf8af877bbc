// epl_plans FOLDER [--every N | --published]: for each pair of a model and a machine, the plan that a search picks
// beside the fastest default, and how much faster it is. Fails where a default is faster, or fewer than a third of the
// pairs gain a tenth. --published: the same for large models and the layouts of their publishers.
#include <cstdio>
#include <cstdlib>
#include <string>

#include "bench/plans/published.h"

namespace epl::plans {
namespace {

constexpr double tenth = 1.1, rounding = 1e-9;

void print(const Compared& one) {
  const char* fastest = one.defaults.empty() ? "none fits" : one.defaults.front().name.c_str();
  std::printf("| %s | %lld %s | %s | %.4g | %.4g | %s | %zu | %.2f |\n", one.pair.model,
              static_cast<long long>(one.pair.ranks), one.pair.cluster, one.picked.name.c_str(), one.picked.seconds,
              one.picked.by_formula, fastest, one.defaults.size(), one.gain());
}

// Whether all is as it should be.
Result<bool> run(const std::string& folder, size_t every) {
  std::printf("| model | machine | picked | simulated, s | by formula, s | fastest default | that fit | times |\n");
  std::printf("|---|---|---|---|---|---|---|---|\n");
  size_t count = 0, slower = 0, gains = 0, alone = 0;
  for (size_t p = 0; p < pairs().size(); p += every) {
    EPL_ASSIGN(const Compared one, compare(pairs()[p], folder));
    print(one);
    ++count;
    alone += one.defaults.empty() ? 1 : 0;
    gains += one.defaults.empty() || one.gain() >= tenth ? 1 : 0;
    slower += !one.defaults.empty() && one.gain() < 1 - rounding ? 1 : 0;
  }
  std::printf("\n%zu pairs: a default is faster in %zu, a tenth or more is gained in %zu, and none fits in %zu\n",
              count, slower, gains, alone);
  return slower == 0 && 3 * gains >= count;
}

Result<bool> run_published(const std::string& folder) {
  std::printf(
      "| model | ranks | layout | its step, s | picked | its step, s | with stragglers, s | calls | simulated in, s "
      "|\n");
  std::printf("|---|---|---|---|---|---|---|---|---|\n");
  bool good = true;
  for (const Published& row : published()) {
    EPL_ASSIGN(const Scaled one, compare_published(row, folder));
    std::printf("| %s | %lld %s | %s%s | %.4g | %s | %.4g | %.4g | %lld | %.2f |\n", row.pair.model,
                static_cast<long long>(row.pair.ranks), row.pair.cluster, row.source,
                one.fits ? "" : " (does not fit by this count)", one.theirs.seconds, one.picked.name.c_str(),
                one.picked.seconds, one.with_stragglers, static_cast<long long>(one.calls), one.simulation_seconds);
    good = good && one.simulation_seconds <= 5;
    if (one.fits) good = good && one.picked.seconds <= one.theirs.seconds * (1 + rounding);
  }
  return good;
}

}  // namespace
}  // namespace epl::plans

int main(int count, char** words) {
  const bool every = count == 4 && std::string(words[2]) == "--every" && std::atoi(words[3]) > 0;
  const bool published = count == 3 && std::string(words[2]) == "--published";
  if (count != 2 && !every && !published) {
    std::fprintf(stderr, "epl_plans FOLDER [--every N | --published]\n");
    return 2;
  }
  const auto good = published ? epl::plans::run_published(words[1])
                              : epl::plans::run(words[1], every ? static_cast<size_t>(std::atoi(words[3])) : 1);
  if (!good.ok()) std::fprintf(stderr, "%s\n", good.status().message().c_str());
  return good.ok() && *good ? 0 : 1;
}
