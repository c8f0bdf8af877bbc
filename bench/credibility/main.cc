// Published results against predictions.
//
//   epl_credibility FOLDER [--rows FILE --like SET] [--brief] [--fit CONSTANT,... --on SET,... [--tries N]]
//                   [--gate SET,ROWS,MEDIAN,P90]
//
// FOLDER has credibility.json. Prints each row, the errors by set and model, of fitted and of held-out rows, and which
// plan the search picks. --rows judges another table instead, with what credibility.json says of that set. --fit
// changes constants to suit the fitted rows of sets, and prints them; nothing is written. With --gate it ends with 1
// unless so many rows of a set are held out, and their errors are within so many percent.
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <map>

#include "bench/credibility/judge.h"
#include "core/base/text.h"

namespace epl::credibility {
namespace {

struct Options {
  std::string folder, rows, like;
  std::vector<std::string> constants, sets, gate;
  int tries = 400;
  bool brief = false;
};

void print_row(const Row& row, double predicted) {
  const char* part = !row.mark.empty() ? "marked" : row.fitted ? "fitted" : "held out";
  std::printf("| %s | %s | %.4g | %.4g | %+.1f %% | %s |\n", row.set.c_str(), row.name.c_str(), row.seconds, predicted,
              100 * (predicted / row.seconds - 1), part);
}

void print_errors(const std::string& name, const std::vector<double>& relative) {
  const Errors e = errors_of(relative);
  if (e.count == 0) return;
  std::printf("| %s | %zu | %.1f %% | %.1f %% | %+.1f %% |\n", name.c_str(), e.count, 100 * e.median, 100 * e.p90,
              100 * e.bias);
}

struct Group {
  std::vector<double> relative, measured, predicted;  // the last two by sample and rank
};

void print_groups(const Book& book, const Judgement& judgement) {
  std::map<std::string, std::vector<double>> parts;
  std::map<std::string, Group> models;
  for (size_t r = 0; r < book.rows.size(); ++r) {
    const Row& row = book.rows[r];
    const double relative = judgement.predicted[r] / row.seconds - 1;
    const std::string part = !row.mark.empty() ? "marked" : row.fitted ? "fitted" : "held out";
    parts["all sets, " + part].push_back(relative);
    parts[cat(row.set, ", ", part)].push_back(relative);
    if (!row.mark.empty()) continue;
    Group& group = models[cat(row.set, " ", row.model, row.fitted ? ", fitted" : ", held out")];
    const double share = static_cast<double>(row.ranks) / static_cast<double>(row.batch);
    group.relative.push_back(relative);
    group.measured.push_back(row.seconds * share);
    group.predicted.push_back(judgement.predicted[r] * share);
  }
  std::printf("\n| rows | number | median error | p90 | bias |\n|---|---|---|---|---|\n");
  for (const auto& [name, relative] : parts) print_errors(name, relative);
  std::printf("\n| model | rows | median error | p90 | rank correlation |\n|---|---|---|---|---|\n");
  for (const auto& [name, group] : models) {
    if (group.relative.size() < 3) continue;
    const Errors e = errors_of(group.relative);
    std::printf("| %s | %zu | %.1f %% | %.1f %% | %.3f |\n", name.c_str(), e.count, 100 * e.median, 100 * e.p90,
                rank_correlation(group.measured, group.predicted));
  }
}

void print_choices(const Judgement& judgement) {
  std::map<std::string, std::vector<double>> distances;
  std::printf("\n| model, ranks, batch | plans | measured best | picked by the search | slower by |\n");
  std::printf("|---|---|---|---|---|\n");
  for (const Choice& one : judgement.choices) {
    std::printf("| %s %s, %lld, %lld%s | %zu | %s | %s | %.1f %% |\n", one.set.c_str(), one.model.c_str(),
                static_cast<long long>(one.ranks), static_cast<long long>(one.batch), one.fitted ? ", fitted" : "",
                one.count, one.best->name.c_str(), one.picked->name.c_str(), 100 * one.distance);
    distances[cat(one.set, one.fitted ? ", fitted" : ", held out")].push_back(one.distance);
  }
  std::printf("\n| choices | number | within 3 %% | 90 of 100 within | worst |\n|---|---|---|---|---|\n");
  for (const auto& [name, all] : distances) {
    const auto near = std::ranges::count_if(all, [](double distance) { return distance <= 0.03; });
    std::printf("| %s | %zu | %lld | %.1f %% | %.1f %% |\n", name.c_str(), all.size(), static_cast<long long>(near),
                100 * errors_of(all).p90, 100 * *std::ranges::max_element(all));
  }
}

Status print_memory(const Book& book) {
  bool any = false;
  for (const Row& row : book.rows) {
    if (!(row.peak > 0)) continue;
    if (!any) std::printf("\n| row | published peak, GiB | predicted |\n|---|---|---|\n");
    any = true;
    EPL_ASSIGN(const Prediction predicted, predict(book, row));
    std::printf("| %s | %.1f | %.1f |\n", row.name.c_str(), row.peak, predicted.bytes / (1 << 30));
  }
  return {};
}

// `gate`: of the options.
Status check_held_out(const Book& book, const Judgement& judgement, const std::vector<std::string>& gate) {
  std::vector<double> relative;
  for (size_t r = 0; r < book.rows.size(); ++r) {
    const Row& row = book.rows[r];
    if (row.set == gate[0] && row.mark.empty() && !row.fitted)
      relative.push_back(judgement.predicted[r] / row.seconds - 1);
  }
  const Errors errors = errors_of(relative);
  const double median = std::atof(gate[2].c_str()), p90 = std::atof(gate[3].c_str());
  if (relative.size() == static_cast<size_t>(std::atoi(gate[1].c_str())) && 100 * errors.median <= median &&
      100 * errors.p90 <= p90)
    return {};
  return invalid("of ", gate[0], " ", relative.size(), " rows are held out, and not ", gate[1], ", or their errors of ",
                 100 * errors.median, " and ", 100 * errors.p90, " % are above ", median, " and ", p90);
}

Status run(const Options& options) {
  EPL_ASSIGN(Book book, read_book(options.folder, options.rows, options.like));
  if (!options.constants.empty()) {
    EPL_TRY(fit(book, options.constants, options.sets, options.tries));
    for (const std::string& name : options.constants) std::printf("%s: %.4g\n", name.c_str(), *book.constants.at(name));
  }
  EPL_ASSIGN(const Judgement judgement, judge(book));
  if (!options.brief) {
    std::printf("| set | row | measured, s | predicted, s | error | |\n|---|---|---|---|---|---|\n");
    for (size_t r = 0; r < book.rows.size(); ++r) print_row(book.rows[r], judgement.predicted[r]);
  }
  print_groups(book, judgement);
  print_choices(judgement);
  EPL_TRY(print_memory(book));
  return options.gate.empty() ? Status() : check_held_out(book, judgement, options.gate);
}

bool parse(int count, char** words, Options& options) {
  for (int i = 1; i < count; ++i) {
    const std::string word = words[i];
    if (word == "--brief") {
      options.brief = true;
    } else if (!word.starts_with("--")) {
      options.folder = word;
    } else if (i + 1 == count) {
      return false;
    } else if (word == "--rows") {
      options.rows = words[++i];
    } else if (word == "--like") {
      options.like = words[++i];
    } else if (word == "--tries") {
      options.tries = std::atoi(words[++i]);
    } else if (word == "--fit") {
      options.constants = comma_separated(words[++i]);
    } else if (word == "--on") {
      options.sets = comma_separated(words[++i]);
    } else if (word == "--gate") {
      options.gate = comma_separated(words[++i]);
      if (options.gate.size() != 4) return false;
    } else {
      return false;
    }
  }
  return !options.folder.empty() && options.rows.empty() == options.like.empty() &&
         options.constants.empty() == options.sets.empty();
}

}  // namespace
}  // namespace epl::credibility

int main(int count, char** words) {
  epl::credibility::Options options;
  if (!epl::credibility::parse(count, words, options)) {
    std::fprintf(
        stderr,
        "epl_credibility FOLDER [--rows FILE --like SET] [--brief] [--fit CONSTANT,... --on SET,... [--tries N]] "
        "[--gate SET,ROWS,MEDIAN,P90]\n");
    return 2;
  }
  const epl::Status status = epl::credibility::run(options);
  if (!status.ok()) std::fprintf(stderr, "%s\n", status.message().c_str());
  return status.ok() ? 0 : 1;
}
