// Ops are known by name to those who write them, launch them or look for them in a graph: records, kernels, rewrites,
// frontends and the rows that build graphs. Everybody else asks a record what its op is (core/ir/op.h), so that a new
// op is one place.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <set>

#include "tests/structure/source_tree.h"

namespace epl::structure::op_names_test {
namespace {

// Folders and files that name ops.
const std::vector<std::string> kHomes = {
    "core/ops/",       "core/program/transfers/", "core/rewrite/",  "core/train/losses/", "core/train/optimizers/",
    "core/ir/builder", "backends/cpu/kernels/",   "backends/cuda/", "backends/onednn/",   "frontends/",
};

struct Exception {
  std::set<std::string> words;
  std::string why;
};

// Words that are also names of ops, and what they mean there.
const std::map<std::string, Exception>& exceptions() {
  static const std::set<std::string> reductions = {"sum", "max", "min"};
  static const std::map<std::string, Exception> all = {
      {"core/backend/communicator.cc",
       {{"all_reduce", "reduce_scatter", "all_gather", "all_to_all", "receive", "send", "sum", "max", "min"},
        "collectives and reductions"}},
      {"core/base/update_options.h", {{"momentum"}, "an attribute of the steps of optimizers"}},
      {"core/capi/describe.cc", {{"where"}, "a key of a description"}},
      {"core/capi/trainer_json.cc", {{"dropout"}, "an option of adapters"}},
      {"core/compile/search_model.cc", {{"all_reduce"}, "a row of transfers, which it leaves out of what it measures"}},
      {"core/ir/op.h", {{"fused"}, "`fused_op`, the name for all who make it"}},
      {"core/ir/sharding_rule.cc", {reductions, "reductions of a rule"}},
      {"core/program/batch_runs.cc", {{"concat", "reshape", "slice"}, "what takes runs apart and joins them"}},
      {"core/program/local_writer.cc", {{"add"}, "a sum of runs"}},
      {"core/program/moves.cc", {{"evict", "fetch"}, "rows of transfers, which it inserts"}},
      {"core/program/partition_node.cc", {{"add", "accumulate"}, "what joins a complete sum"}},
      {"core/program/shard_body.cc", {{"logical_and", "logical_not"}, "indices into a shard"}},
      {"core/program/shard_halo.cc", {{"halo", "logical_and"}, "borders of shards, and positions in them"}},
      {"core/program/reshard.cc",
       {{"accumulate", "all_gather", "all_reduce", "all_to_all", "batch_slice", "max", "min", "pad", "receive",
         "reduce_scatter", "reshape", "send", "slice", "transpose"},
        "rows of transfers and reductions, which it chooses, and what it writes around them"}},
      {"core/program/row_routes.cc", {{"combine_rows", "dispatch_rows"}, "rows to who owns them, and answers back"}},
      {"core/program/sum_moves.cc", {{"cast", "mul"}, "what scales and rounds the parts of a sum"}},
      {"core/program/transfer.cc", {reductions, "reductions of a collective"}},
      {"core/program/uploads.cc", {{"upload"}, "a row of transfers, which it inserts"}},
      {"core/strategy/plan_text.cc", {reductions, "reductions of a sharding"}},
      {"core/strategy/strategy.cc", {reductions, "the words of a key"}},
      {"core/train/metrics/top_k.cc", {{"top_k"}, "a metric"}},
      {"core/train/train_step.h", {{"sgd"}, "the optimizer of who names none"}},
      {"tools/binding.cc", {{"where"}, "a key of a description"}},
      {"tools/inspect.cc", {{"where"}, "a key of a description"}},
      {"tools/job.h", {{"adamw"}, "the optimizer of who names none"}},
      {"tools/lora.cc", {{"dropout"}, "an option of adapters"}},
      {"tools/machine_probes.cc",
       {{"all_reduce", "all_gather", "reduce_scatter", "upload"}, "rows of transfers, as records of steps name them"}},
      {"tools/main.cc", {{"where"}, "a key of a description"}},
  };
  return all;
}

// The rows of `EPL_OP(name)` in some text.
void add_op_names(const std::string& text, std::set<std::string>& names) {
  for (const std::string& line : lines_of(text)) {
    if (line.starts_with("EPL_OP(")) names.insert(line.substr(7, line.find(')') - 7));
  }
}

// The literals of a text that are names, with their lines.
std::vector<std::pair<int, std::string>> named_in(const std::string& text, const std::set<std::string>& names) {
  std::vector<std::pair<int, std::string>> found;
  const std::vector<std::string> lines = lines_of(text), code = lines_of(code_of(text));
  for (size_t n = 0; n < code.size(); ++n) {
    size_t end = 0;
    for (size_t begin = code[n].find('"'); begin != std::string::npos; begin = code[n].find('"', end + 1)) {
      end = code[n].find('"', begin + 1);
      if (end == std::string::npos) break;
      const std::string literal = lines[n].substr(begin + 1, end - begin - 1);
      if (names.contains(literal)) found.emplace_back(static_cast<int>(n) + 1, literal);
    }
  }
  return found;
}

TEST(OpNames, StandOnlyWhereOpsAreWrittenOrLookedFor) {
  std::set<std::string> names;
  for (const SourceFile& file : files_below({"core/ops", "core/program/transfers"}, {".cc"}))
    add_op_names(file.text, names);
  ASSERT_GT(names.size(), 100u);
  std::map<std::string, std::set<std::string>> used;
  for (const SourceFile& file : files_below({"core", "backends", "tools"}, {".cc", ".h"})) {
    const auto holds = [&](const std::string& home) { return file.path.starts_with(home); };
    if (std::ranges::any_of(kHomes, holds)) continue;
    const auto exception = exceptions().find(file.path);
    for (const auto& [line, name] : named_in(file.text, names)) {
      used[file.path].insert(name);
      EXPECT_TRUE(exception != exceptions().end() && exception->second.words.contains(name))
          << file.path << ":" << line << ": names the op " << name
          << "; ask its record (OpDef), or give it a field that answers";
    }
  }
  for (const auto& [path, exception] : exceptions()) {
    EXPECT_TRUE(used.contains(path)) << path << " is an exception (" << exception.why << ") and names no op";
  }
}

TEST(OpNames, ALiteralIsSeenAndACommentIsNot) {
  const std::set<std::string> names = {"softmax"};
  const auto found =
      named_in("// \"softmax\"\nif (op == \"softmax\" || say(\"softmax of x\")) f(\"\\\"\", \"softmax\");\n", names);
  ASSERT_EQ(found.size(), 2u);
  EXPECT_EQ(found[0], (std::pair<int, std::string>(2, "softmax")));
}

}  // namespace
}  // namespace epl::structure::op_names_test
