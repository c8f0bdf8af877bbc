// epl fuzz-layouts: draws pairs of layouts and trains the same under both. What is promised is compared: every bit, or
// what rounding leaves where a split sums in another order. A pair that differs is made as simple as it can be.
#include <algorithm>
#include <map>

#include "tools/binding.h"
#include "tools/commands.h"
#include "tools/scratch_folder.h"
#include "tools/subject.h"
#include "tools/text.h"
#include "tools/usage.h"
#include "tools/values.h"

namespace epl::tools {
namespace {

struct FuzzOptions {
  JobOptions job;  // of a model
  std::vector<std::string> cases;
  uint64_t seed = 1;
  int64_t count = 40, first = 0, integers = 4;
  bool details = false, json = false;
};

struct Pair {
  Layout a, b;
  SameBits common;
  bool bits = true;
};

bool shares_ranks(const Layout& layout) {
  const auto key = layout.keys.find("cluster.colocate_split_and_replicate");
  return layout.beside || (key != layout.keys.end() && key->second == Json(true));
}

// Keys that say what a split cuts.
constexpr const char* split_keys[] = {"split.sequence", "split.spatial"};

// Of a schedule. Some give a rank several stages: how many the engine then finds.
constexpr const char* schedule_keys[] = {"pipeline.strategy", "pipeline.virtual_stages"};

bool alike(const Layout& a, const Layout& b, const auto& keys) {
  const auto value = [](const Layout& layout, const char* name) {
    const auto key = layout.keys.find(name);
    return key == layout.keys.end() ? Json() : key->second;
  };
  return std::ranges::all_of(keys, [&](const char* name) { return value(a, name) == value(b, name); });
}

// At level `data` a split decides in which order some sums are taken, and it is decided within each stage; what lies
// between its nodes may be cut by it too. So beside the same splits of the same stages nothing changes a bit. Where
// scopes share their ranks it is decided for each pair of scopes.
bool promises_bits(const Pair& pair) {
  const bool same_stages = pair.a.cuts == pair.b.cuts && pair.a.engine_cuts == pair.b.engine_cuts &&
                           (!pair.a.engine_cuts || alike(pair.a, pair.b, schedule_keys)) &&
                           pair.a.experts == pair.b.experts && alike(pair.a, pair.b, split_keys) &&
                           !shares_ranks(pair.a) && !shares_ranks(pair.b);
  const bool same_splits = pair.a.split == pair.b.split && (pair.a.split == 1 || same_stages);
  return pair.common.level == "layout" || same_splits;
}

// A refusal that is one: of the right kind, and it says what, or what of which size, is in the way.
std::string bad_refusal(const Trained& trained, const std::string& strategy) {
  const bool kind = trained.code == EPL_ERROR_UNSUPPORTED || trained.code == EPL_ERROR_INVALID_ARGUMENT;
  if (!kind) return "a plan ended with an error of another kind than a refusal: " + trained.message;
  const bool says = trained.message.find_first_of("0123456789\"") != std::string::npos ||
                    trained.message.find("node ") != std::string::npos;
  return says ? "" : "the refusal of " + strategy + " names no number, name or node: " + trained.message;
}

class Fuzzer {
 public:
  explicit Fuzzer(const FuzzOptions& o) : o_(o), source_(library().at("strategy_keys")) {}

  int run() {
    // Refusals do not count, but they must not go on for ever either.
    const int64_t max_tries = 30 * o_.count + 100;
    for (int64_t index = o_.first; compared_ < o_.count && index < o_.first + max_tries && failed_ < 5; ++index)
      try_pair(index);
    say_end();
    return failed_ == 0 && compared_ >= o_.count ? 0 : 1;
  }

 private:
  void try_pair(int64_t index) {
    Draws draws(o_.seed * 0x9e3779b97f4a7c15 + static_cast<uint64_t>(index));
    std::unique_ptr<Subject> subject = draw_subject(draws);
    if (!subject->unusable().empty()) throw UsageError(subject->said() + ": " + subject->unusable());
    Pair pair;
    pair.common.level = draws.of(source_.levels());
    int64_t units = 1;
    while (units < 8 && subject->batch() % (units * 2) == 0) units *= 2;
    if (units > 1 && draws.one_in(4)) pair.common.units = units /= draws.one_in(2) ? 2 : 1;
    pair.a = source_.draw(draws, units);
    pair.b = source_.draw(draws, units);
    // Most pairs are split alike, so that most are compared bit by bit.
    if (!draws.one_in(4)) split_alike(pair);
    // Independent micro-batches are another job, which every layout with as many of them does alike.
    if (draws.one_in(6) && units > 1) {
      pair.common.independent = draws.one_in(2) ? 2 : units;
      for (Layout* layout : {&pair.a, &pair.b})
        layout->copies = std::min(layout->copies, units / pair.common.independent);
    }
    // Mixed precision is another job too. What only rounds differently is not compared in it.
    if (draws.one_in(5) && promises_bits(pair)) pair.common.narrow = draws.one_in(3) ? "f16" : "bf16";
    pair.bits = promises_bits(pair);
    if (!pair.bits) subject->expect_rounding();
    judge(index, *subject, pair);
  }

  static void take(const Layout& from, const auto& keys, Layout& to) {
    for (const char* name : keys) {
      to.keys.erase(name);
      if (const auto key = from.keys.find(name); key != from.keys.end()) to.keys[name] = key->second;
    }
  }

  static void split_alike(Pair& pair) {
    pair.b.split = pair.a.split;
    pair.b.experts = pair.b.beside = false;
    if (pair.a.split > 1) {
      pair.b.cuts = pair.a.cuts;
      pair.b.engine_cuts = pair.a.engine_cuts;
      pair.b.experts = pair.a.experts;
      take(pair.a, split_keys, pair.b);
      if (pair.a.engine_cuts) take(pair.a, schedule_keys, pair.b);
    }
    while (pair.b.ranks() > max_ranks) pair.b.copies /= 2;
    if (!pair.b.cuts.empty()) return;
    pair.b.keys.erase("pipeline.strategy");
    pair.b.keys.erase("pipeline.virtual_stages");
  }

  std::unique_ptr<Subject> draw_subject(Draws& draws) {
    const uint64_t seed = draws.bits();
    if (!o_.job.model.empty()) return model_of(o_.job, seed, o_.integers);
    if (!o_.cases.empty()) return case_of(draws.of(o_.cases));
    return random_graph(seed, 0, folder_.path());
  }

  void judge(int64_t index, Subject& subject, const Pair& pair) {
    if (o_.details)  // before it runs, in case it never ends
      say_error("pair %lld: %s: %s and %s\n", static_cast<long long>(index), subject.said().c_str(),
                said(subject, pair, pair.a).c_str(), said(subject, pair, pair.b).c_str());
    const Trained a = subject.train(pair.a, pair.common);
    for (const Layout* layout : {&pair.a, &pair.b}) {
      const Trained one = layout == &pair.a ? a : subject.train(pair.b, pair.common);
      if (one.refused()) {
        const std::string wrong = bad_refusal(one, subject.strategy(*layout, pair.common));
        if (!wrong.empty()) return fail(index, subject, pair, wrong);
        ++refused_;
        ++reasons_[one.message.substr(0, one.message.find_first_of("0123456789:"))];
        if (o_.details) say_error("pair %lld refused: %s\n", static_cast<long long>(index), one.message.c_str());
        return;
      }
      if (layout == &pair.a) continue;
      const std::string found = difference(a, one, pair.bits);
      if (!found.empty()) return fail(index, subject, pair, found);
    }
    ++compared_;
    (pair.bits ? bitwise_ : within_rounding_) += 1;
    if (o_.details)
      say_error("pair %lld the same %s\n", static_cast<long long>(index), pair.bits ? "bits" : "but for rounding");
  }

  static std::string differs(Subject& subject, const Pair& pair) {
    if (!subject.unusable().empty()) return "";
    const Trained a = subject.train(pair.a, pair.common), b = subject.train(pair.b, pair.common);
    if (a.refused() || b.refused()) {
      const Trained& refused = a.refused() ? a : b;
      return bad_refusal(refused, "");
    }
    return difference(a, b, pair.bits);
  }

  // Takes away what is not needed for the failure, one thing after the other, until nothing can go.
  void shrink(std::unique_ptr<Subject>& smaller, Subject& first, Pair& pair, std::string& found) {
    for (bool again = true; again;) {
      again = false;
      Subject& subject = smaller ? *smaller : first;
      if (auto less = subject.smaller()) {
        if (!pair.bits) less->expect_rounding();
        const std::string still = differs(*less, pair);
        if (!still.empty()) {
          smaller = std::move(less);
          found = still;
          again = true;
          continue;
        }
      }
      for (Layout Pair::* side : {&Pair::b, &Pair::a}) {
        for (const Layout& layout : simpler(pair.*side)) {
          Pair less = pair;
          less.*side = layout;
          const bool bits = promises_bits(less);
          if (bits != pair.bits || less.a == less.b) continue;
          const std::string still = differs(subject, less);
          if (still.empty()) continue;
          pair = less;
          found = still;
          again = true;
          break;
        }
        if (again) break;
      }
    }
  }

  std::string said(const Subject& subject, const Pair& pair, const Layout& layout) const {
    return std::to_string(layout.ranks()) + " ranks, " + std::to_string(layout.threads) + " threads, " +
           subject.strategy(layout, pair.common) +
           (layout.machine.is_null() ? "" : ", on " + print_json(layout.machine));
  }

  void fail(int64_t index, Subject& subject, const Pair& first, std::string found) {
    ++failed_;
    Pair pair = first;
    std::unique_ptr<Subject> smaller;
    shrink(smaller, subject, pair, found);
    const Subject& last = smaller ? *smaller : subject;
    const std::string again =
        "epl fuzz-layouts --seed " + std::to_string(o_.seed) + " --first " + std::to_string(index) + " --count 1";
    if (o_.json) {
      say_json({{"event", "failure"},
                {"found", found},
                {"again", again},
                {"subject", last.said()},
                {"bitwise", pair.bits},
                {"first", said(last, pair, pair.a)},
                {"second", said(last, pair, pair.b)}});
    } else {
      say("FAIL  %s\n      %s\n      first:  %s\n      second: %s\n      again: %s\n", found.c_str(),
          last.said().c_str(), said(last, pair, pair.a).c_str(), said(last, pair, pair.b).c_str(), again.c_str());
    }
    std::fflush(stdout);
  }

  void say_end() const {
    if (o_.json) {
      Json reasons = Json::object();
      for (const auto& [reason, count] : reasons_) reasons[reason] = count;
      say_json({{"event", "done"},
                {"compared", compared_},
                {"bitwise", bitwise_},
                {"within_rounding", within_rounding_},
                {"refused", refused_},
                {"reasons", reasons},
                {"failed", failed_}});
      return;
    }
    say("%lld pairs compared, %lld bit by bit; %lld refused; %lld failed\n", static_cast<long long>(compared_),
        static_cast<long long>(bitwise_), static_cast<long long>(refused_), static_cast<long long>(failed_));
    for (const auto& [reason, count] : reasons_)
      say("      refused %lld times: %s...\n", static_cast<long long>(count), reason.c_str());
  }

  const FuzzOptions& o_;
  LayoutSource source_;
  ScratchFolder folder_;
  int64_t compared_ = 0, bitwise_ = 0, within_rounding_ = 0, refused_ = 0, failed_ = 0;
  std::map<std::string, int64_t> reasons_;
};

}  // namespace

Run add_fuzz_layouts(CLI::App& app) {
  auto o = std::make_shared<FuzzOptions>();
  app.footer(R"(  epl fuzz-layouts --seed 7 --count 2000
  epl fuzz-layouts tests/cases/mlp_sgd_legacy --count 20
  epl fuzz-layouts --model model.onnx --batch 8)");
  app.option_defaults()->group(groups::data);
  app.add_option("cases", o->cases, "folders of cases to train (epl check); without them, graphs that are drawn")
      ->check(existing_folder());
  app.add_option("--model", o->job.model, "a model to train instead, with data that are drawn")->check(existing_file());
  app.add_option("--integers", o->integers, "integers that are drawn for the model's inputs and targets are below this")
      ->check(integer_value(1))
      ->capture_default_str();
  app.add_option("--seed", o->seed, "of everything that is drawn")->check(seed_number())->capture_default_str();
  app.add_option("--count", o->count, "pairs of layouts to compare; those that are refused do not count")
      ->check(integer_value(1))
      ->capture_default_str();
  app.add_option("--first", o->first, "the number of the first pair, as a failure names it")
      ->check(integer_value(0))
      ->capture_default_str();
  add_binding_options(app, o->job);
  app.option_defaults()->group(groups::watching);
  app.add_flag("--details", o->details, "every pair, on standard error");
  app.add_flag("--json", o->json, "a JSON line for each failure and one for the end");
  return [o] { return Fuzzer(*o).run(); };
}

}  // namespace epl::tools
