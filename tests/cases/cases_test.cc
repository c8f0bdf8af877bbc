// Every training case with a known answer, here and in ../shared/cases beside the checkout, by `epl check`: right, and
// the same bits however the work is cut, on every machine. hashes.txt holds the weights' hashes.
#include <gtest/gtest.h>
#include <sys/wait.h>

#include <cstdio>
#include <filesystem>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <sstream>

#include "tests/temporary_folder.h"
#include "tests/thirds.h"

namespace epl::cases_test {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;

const fs::path own = fs::path(EPL_SOURCE_DIR) / "tests" / "cases";
const fs::path shared = fs::path(EPL_SOURCE_DIR) / ".." / "shared" / "cases";

struct Expected {
  std::string name, hash;
};
void PrintTo(const Expected& e, std::ostream* out) { *out << e.name; }

// Lines "NAME HASH"; # starts a comment.
std::vector<Expected> read_hashes() {
  std::vector<Expected> out;
  std::ifstream file(own / "hashes.txt");
  for (std::string line; std::getline(file, line);) {
    if (line.empty() || line[0] == '#') continue;
    std::istringstream words(line);
    Expected e;
    words >> e.name >> e.hash;
    out.push_back(e);
  }
  return out;
}

// What `epl COMMAND PATH ARGUMENTS --json` says, with `environment` ("NAME=VALUE ") before it.
Json tool(const std::string& name, const fs::path& path, const std::string& arguments,
          const std::string& environment = "") {
  const std::string command =
      environment + EPL_TOOL + " " + name + " '" + path.string() + "' " + arguments + " --json 2>&1";
  FILE* pipe = popen(command.c_str(), "r");
  if (!pipe) return {{"error", "cannot start " + command}};
  std::string text;
  char buffer[4096];
  for (size_t n; (n = fread(buffer, 1, sizeof buffer, pipe)) > 0;) text.append(buffer, n);
  const int code = pclose(pipe);
  Json result = Json::parse(text, nullptr, false);
  if (result.is_discarded() || !result.is_object()) return {{"error", text}};
  result["exit"] = WIFEXITED(code) ? WEXITSTATUS(code) : -1;
  return result;
}

Json check(const fs::path& folder, const std::string& arguments, const std::string& environment = "") {
  return tool("check", folder, arguments, environment);
}

void expect_pass(const Json& result, const std::string& what) {
  EXPECT_TRUE(result.value("pass", false)) << what << ": " << result.dump();
  EXPECT_EQ(result.value("exit", -1), 0) << what;
  EXPECT_EQ(result.value("planned_peak_bytes", int64_t{-1}), result.value("measured_peak_bytes", int64_t{-2})) << what;
}

fs::path folder_of(const std::string& name) { return fs::exists(own / name) ? own / name : shared / name; }

// Lines "NAME TOLERANCE" of float64.txt: the cases that are not within 1e-9 in float64.
double float64_tolerance(const std::string& name) {
  std::ifstream file(own / "float64.txt");
  for (std::string line; std::getline(file, line);) {
    std::istringstream words(line);
    std::string listed;
    double tolerance = 0;
    if (words >> listed >> tolerance && listed == name) return tolerance;
  }
  return 1e-9;
}

class Cases : public testing::TestWithParam<Expected> {};

TEST_P(Cases, AreRight) {
  const Expected& e = GetParam();
  const fs::path folder = folder_of(e.name);
  if (!fs::exists(folder)) GTEST_SKIP() << "../shared/cases/" << e.name << " is not beside this checkout";
  const Json result = check(folder, "");
  expect_pass(result, "");
  EXPECT_EQ(result.value("weights_hash", ""), e.hash);
}

TEST_P(Cases, HaveTheSameBitsInEveryLayout) {
  EPL_ONE_OF_THREE();
  const Expected& e = GetParam();
  const fs::path folder = folder_of(e.name);
  if (!fs::exists(folder)) GTEST_SKIP() << "../shared/cases/" << e.name << " is not beside this checkout";
  const Json result = check(folder, "--layouts");
  expect_pass(result, "");
  EXPECT_EQ(result.value("weights_hash", ""), e.hash);
  const Json layouts = result.value("layouts", Json::array());
  EXPECT_EQ(layouts.size(), 7u);
  for (const Json& layout : layouts) {
    EXPECT_EQ(layout.value("refused", ""), "") << layout.dump();
    EXPECT_EQ(layout.value("weights_hash", ""), e.hash) << layout.dump();
    EXPECT_EQ(layout.value("planned_peak_bytes", int64_t{-1}), layout.value("measured_peak_bytes", int64_t{-2}))
        << layout.dump();
  }
}

// PyTorch made the references in float64: so the engine, in float64, must give the same numbers.
TEST_P(Cases, AreExactInFloat64) {
  EPL_ONE_OF_THREE();
  const Expected& e = GetParam();
  if (!fs::exists(own / e.name)) GTEST_SKIP() << "only the cases of this folder";
  const Json result = check(own / e.name, "--precision f64");
  const double tolerance = float64_tolerance(e.name);
  for (const char* error : {"loss_error", "gradient_error", "parameter_error"}) {
    EXPECT_LE(result.value(error, 1.0), tolerance) << error << ": " << result.dump();
  }
  EXPECT_EQ(result.value("pass", false), tolerance == 1e-9) << "float64.txt lists those that are not within 1e-9";
}

// Strategies with two found stages. Each case has some of the schedules, which the cases share out.
std::vector<std::string> found_stages(const std::string& name) {
  const std::vector<std::string> schedules = {R"("PreferForward")",
                                              R"("1F1B")",
                                              R"("PreferBackwardOptimizer")",
                                              R"("interleaved","pipeline.virtual_stages":2)",
                                              R"("ZB-H1")",
                                              R"("ZB-V")",
                                              R"("DualPipe-V","pipeline.num_micro_batch":4)"};
  const size_t first = std::hash<std::string>()(name);
  std::vector<std::string> found;
  for (size_t i = 0; i < (EPL_SANITIZED ? 1u : 2u); ++i) {
    const std::string& schedule = schedules[(first + i * 3) % schedules.size()];
    found.push_back(R"({"pipeline.num_stages":2,"pipeline.strategy":)" + schedule +
                    (schedule.find("micro") == std::string::npos ? R"(,"pipeline.num_micro_batch":2})" : "}"));
  }
  return found;
}

// Most composites have no kernels of float64, so their parts stand in the plan. Stages that are found keep the parts of
// a composite together, and its backward pass with them, under every schedule.
TEST_P(Cases, AreExactInFloat64InFoundStages) {
  EPL_ONE_OF_THREE();
  const Expected& e = GetParam();
  const fs::path folder = folder_of(e.name);
  if (!fs::exists(folder)) GTEST_SKIP() << "../shared/cases/" << e.name << " is not beside this checkout";
  const std::string hash = check(folder, "--precision f64").value("weights_hash", "none");
  for (const std::string& strategy : found_stages(e.name)) {
    const Json result = check(folder, "--precision f64 --ranks 2 --strategy '" + strategy + "'");
    EXPECT_EQ(result.value("weights_hash", ""), hash) << strategy << ": " << result.dump();
  }
}

// Mixtures of experts whose weights are one tensor, as PyTorch exports them: two ranks share out the experts, beside
// four that share out the samples. What adds up the answers of experts is cut by samples, so the bits are those of one
// rank. Where tokens go to slots of the full batch by index, all ranks fill all slots and take those of their experts.
// The weights alone name the scope as well: what lies between their products joins it.
TEST(Experts, AreGivenToRanks) {
  std::map<std::string, std::string> hashes;
  for (const Expected& e : read_hashes()) hashes[e.name] = e.hash;
  for (const char* name : {"moe_top1_legacy_adamw", "moe_top2_dynamo_momentum", "moe_dropless_legacy_momentum",
                           "moe_indexed_legacy_adam"}) {
    for (const std::string match : {R"(["*moe*", "param:moe.w*"])", R"("param:moe.w*")"}) {
      const Json result = check(own / name, R"(--ranks 4 --strategy '{"scopes": [{"name": "experts", "match": )" +
                                                match + R"(, "expert": 2}]}')");
      expect_pass(result, name);
      EXPECT_EQ(result.value("weights_hash", ""), hashes.at(name)) << name << " " << match;
    }
  }
  // Weights that each token gathers: tokens go to the rank that has what they gather.
  const std::string picked =
      R"(--ranks 4 --strategy '{"scopes": [{"match": "param:*experts*", "expert": 2}], "default": {"replicate": 1}}')";
  const Json result = check(own / "moe_picked_dynamo_adamw", picked);
  expect_pass(result, "moe_picked_dynamo_adamw");
  EXPECT_EQ(result.value("weights_hash", ""), hashes.at("moe_picked_dynamo_adamw"));
  // A loop over experts, each with weights of its own: they lie on ranks uncut, also where ranks do not divide them.
  for (const char* ranks : {R"(--ranks 2 --strategy '{"scopes": [{"match": "param:*experts*", "expert": 2}]}')",
                            R"(--ranks 4 --strategy '{"scopes": [{"match": "param:*experts*", "expert": 4}]}')",
                            R"(--ranks 6 --strategy '{"scopes": [{"match": "param:*experts*", "expert": 3}]}')"}) {
    const Json looped = check(own / "moe_looped_dynamo_adamw", ranks);
    expect_pass(looped, ranks);
    EXPECT_EQ(looped.value("weights_hash", ""), hashes.at("moe_looped_dynamo_adamw")) << ranks;
  }
}

// Two ranks have shards of the weights, and so have two more that have other samples.
TEST_P(Cases, AreRightInShardsOfTheWeights) {
  EPL_ONE_OF_THREE();
  const Expected& e = GetParam();
  if (!fs::exists(own / e.name)) GTEST_SKIP() << "only the cases of this folder";
  std::string hash;
  for (const char* ranks : {"2", "4"}) {
    const Json result =
        check(own / e.name, std::string("--ranks ") + ranks + R"( --strategy '{"default": {"split": 2}}')");
    expect_pass(result, std::string(ranks) + " ranks");
    if (hash.empty()) hash = result.value("weights_hash", "");
    EXPECT_EQ(result.value("weights_hash", ""), hash) << ranks << " ranks";
  }
}

// At level `layout` the shards give the bits of one rank, whatever else is cut. Its bits are others than those of level
// `data` where a split cuts a sum, else this would show nothing.
TEST(CaseFolders, HaveTheBitsOfOneRankAtLevelLayout) {
  EPL_ONE_OF_THREE();
  const auto strategy = [](const std::string& level, int split, int micro_batches) {
    return " --strategy '{\"reproducible.level\": \"" + level +
           "\", \"pipeline.num_micro_batch\": " + std::to_string(micro_batches) +
           ", \"default\": {\"split\": " + std::to_string(split) + "}}'";
  };
  for (const char* name : {"mlp_bce_momentum", "cnn_momentum_legacy", "gpt_legacy_adamw", "llama_dynamo_adamw",
                           "bert_class_adamw", "vit_legacy_momentum"}) {
    const Json alone = check(own / name, "--ranks 1" + strategy("layout", 1, 1));
    expect_pass(alone, name);
    struct Cuts {
      int ranks, split, micro_batches;
    };
    for (const Cuts& cuts : {Cuts{2, 2, 2}, Cuts{4, 2, 1}, Cuts{4, 4, 1}, Cuts{8, 8, 1}}) {
      const Json result = check(
          own / name, "--ranks " + std::to_string(cuts.ranks) + strategy("layout", cuts.split, cuts.micro_batches));
      expect_pass(result, name);
      EXPECT_EQ(result.value("weights_hash", ""), alone.value("weights_hash", "-"))
          << name << ": split over " << cuts.split << " of " << cuts.ranks;
    }
  }
  const std::string gpt = "gpt_legacy_adamw";
  EXPECT_NE(check(own / gpt, "--ranks 2" + strategy("data", 2, 1)).value("weights_hash", ""),
            check(own / gpt, "--ranks 1" + strategy("data", 1, 1)).value("weights_hash", ""));
}

// Batch norms and gates with a capacity train over micro-batches and pipelines where each micro-batch is independent:
// something else than the full batch together, and the same in every layout.
TEST(CaseFolders, CoupledSamplesTrainInIndependentMicroBatches) {
  EPL_ONE_OF_THREE();
  const auto in_two = [](const std::string& more) {
    return R"( --strategy '{"batch.semantics": "per_micro_batch", "pipeline.num_micro_batch": 2)" + more + "}'";
  };
  for (const char* name : {"moe_indexed_legacy_adam", "moe_top2_dynamo_momentum", "resnet_adamw"}) {
    const std::string hash = check(own / name, in_two("")).value("weights_hash", "");
    EXPECT_FALSE(hash.empty()) << name;
    EXPECT_NE(hash, check(own / name, "").value("weights_hash", "")) << name;
    EXPECT_EQ(check(own / name, "--ranks 4" + in_two("")).value("weights_hash", "-"), hash) << name;
    const std::string pipeline = R"(, "pipeline.num_stages": 2, "pipeline.strategy": "ZB-H1")";
    EXPECT_EQ(check(own / name, "--ranks 4" + in_two(pipeline)).value("weights_hash", "-"), hash) << name;
  }
}

INSTANTIATE_TEST_SUITE_P(All, Cases, testing::ValuesIn(read_hashes()),
                         [](const auto& info) { return info.param.name; });

// Offsets waste little: the arena is at most a twentieth larger than what lives in it at once.
TEST(CaseFolders, ArenasAreTight) {
  EPL_ONE_OF_THREE();
  int planned = 0;
  for (const Expected& e : read_hashes()) {
    const fs::path model = folder_of(e.name) / "model.onnx";
    if (!fs::exists(model)) continue;
    for (const char* cut : {"", "--micro-batches 2"}) {
      const Json plan = tool("plan", model, std::string("--batch 4 ") + cut);
      if (plan.value("exit", -1) != 0) continue;  // another loss than the first output's cross-entropy, or samples mix
      EXPECT_LE(plan.value("arena_bytes", 1e18), 1.05 * plan.value("arena_live_bytes", 0.0)) << e.name << " " << cut;
      ++planned;
    }
  }
  EXPECT_GE(planned, 30);
}

// At level `run` kernels may sum in another order: the same answer, and the same bits again in the same layout. Where
// the folder named has no pack, the built-in kernels serve, whose bits are known.
TEST_P(Cases, AreRightAtLevelRun) {
  EPL_ONE_OF_THREE();
  const Expected& e = GetParam();
  const fs::path folder = folder_of(e.name);
  if (!fs::exists(folder)) GTEST_SKIP() << "../shared/cases/" << e.name << " is not beside this checkout";
  // The leak checker's own tracer falls over threads of oneDNN's OpenMP now and then, after the answer is out.
  const std::string no_leak_check = "ASAN_OPTIONS=detect_leaks=0 ";
  const std::string run = "--strategy '{\"reproducible.level\":\"run\"}' ";
  for (const char* layout : {"--threads 1", "--threads 2", "--threads 2 --ranks 2"}) {
    const Json result = check(folder, run + layout, no_leak_check);
    expect_pass(result, layout);
    if (EPL_SANITIZED) continue;  // which sees nothing new in the same run again, and takes ten times as long
    const Json again = check(folder, run + layout, no_leak_check);
    EXPECT_EQ(result.value("weights_hash", "a"), again.value("weights_hash", "b")) << layout;
  }
  const Json without = check(folder, run + "--threads 2 --packs '" + folder.string() + "'");
  expect_pass(without, "without packs");
  EXPECT_EQ(without.value("weights_hash", ""), e.hash) << "without packs";
}

// On a device whose memory the host cannot touch, and whose work waits until it must be done.
TEST_P(Cases, AreTheSameBitsFarAway) {
  EPL_ONE_OF_THREE();
  const Expected& e = GetParam();
  const fs::path folder = folder_of(e.name);
  if (!fs::exists(folder)) GTEST_SKIP() << "../shared/cases/" << e.name << " is not beside this checkout";
  const std::string far = std::string("LD_LIBRARY_PATH='") + EPL_FAR_LIBRARY + "' ";
  const Json result = check(folder, "--threads 2 --ranks 2", far);
  expect_pass(result, "");
  EXPECT_EQ(result.value("weights_hash", ""), e.hash);
}

// And it is that device: what is uploaded needs memory there.
TEST(CaseFolders, FarAwayIsFarAway) {
  const auto arena = [](const std::string& environment) {
    const Json plan = tool("plan", own / "mlp_sgd_legacy" / "model.onnx", "--batch 4", environment);
    return plan.value("arena_bytes", -1.0);
  };
  EXPECT_GT(arena(""), 0);
  EXPECT_GT(arena(std::string("LD_LIBRARY_PATH='") + EPL_FAR_LIBRARY + "' "), arena(""));
}

// On a device that has kernels of no composite (an op with a body): softmax, norms and attention stand in parts in the
// plan. The training is as right, and found stages keep the bits of one rank.
TEST_P(Cases, AreRightInPartsOfComposites) {
  EPL_ONE_OF_THREE();
  const Expected& e = GetParam();
  const fs::path folder = folder_of(e.name);
  if (!fs::exists(folder)) GTEST_SKIP() << "../shared/cases/" << e.name << " is not beside this checkout";
  const std::string parts = std::string("EPL_WITHOUT_COMPOSITES=1 LD_LIBRARY_PATH='") + EPL_FAR_LIBRARY + "' ";
  const Json one = check(folder, "--threads 2", parts);
  expect_pass(one, "one rank");
  for (const std::string& strategy : found_stages(e.name)) {
    const Json result = check(folder, "--ranks 2 --strategy '" + strategy + "'", parts);
    expect_pass(result, strategy);
    EXPECT_EQ(result.value("weights_hash", ""), one.value("weights_hash", "none")) << strategy;
  }
}

// The parts are more commands than the composites.
TEST(CaseFolders, PartsStandInThePlan) {
  EPL_ONE_OF_THREE();
  const auto commands = [](const std::string& environment) {
    const std::string far = environment + "LD_LIBRARY_PATH='" + EPL_FAR_LIBRARY + "' ";
    return tool("plan", own / "gpt2_dynamo_adam" / "model.onnx", "", far).value("instructions", -1);
  };
  EXPECT_GT(commands(""), 0);
  EXPECT_GT(commands("EPL_WITHOUT_COMPOSITES=1 "), commands("") + 20);
}

std::set<std::string> folders_with_cases(const fs::path& parent) {
  std::set<std::string> out;
  if (!fs::is_directory(parent)) return out;
  for (const auto& entry : fs::directory_iterator(parent)) {
    if (fs::exists(entry.path() / "reference.json")) out.insert(entry.path().filename().string());
  }
  return out;
}

TEST(CaseFolders, EachHasItsHash) {
  std::set<std::string> listed;
  for (const Expected& e : read_hashes()) listed.insert(e.name);
  for (const std::string& name : folders_with_cases(own))
    EXPECT_TRUE(listed.contains(name)) << name << " is not in hashes.txt";
  EXPECT_GE(folders_with_cases(own).size(), 20u);
}

// Cases that nobody has listed, from whoever put them there.
TEST(CaseFolders, UnlistedOnesPass) {
  std::set<std::string> listed;
  for (const Expected& e : read_hashes()) listed.insert(e.name);
  if (!fs::is_directory(shared)) GTEST_SKIP() << "../shared/cases is not beside this checkout";
  for (const std::string& name : folders_with_cases(shared)) {
    if (!listed.contains(name)) expect_pass(check(shared / name, ""), name);
  }
}

// Each test is of one third, and no third is small.
TEST(Thirds, HoldEachTestOnce) {
  std::map<int, int> tests;
  for (const Expected& e : read_hashes()) {
    for (const char* name : {"AreExactInFloat64", "AreTheSameBitsFarAway", "AreRightAtLevelRun"})
      ++tests[third_of(std::string("All/Cases.") + name + "/" + e.name)];
  }
  EXPECT_EQ(tests.size(), 3u);
  for (const auto& [third, count] : tests) {
    EXPECT_TRUE(third >= 1 && third <= 3) << third;
    EXPECT_GE(count, 30) << third;
  }
}

// A check that notices nothing would pass everything above.
TEST(CaseFolders, AWrongAnswerFails) {
  const TemporaryFolder temporary;
  const fs::path copy = temporary / "wrong_case";
  for (const char* table : {"losses", "step0_grad_norms", "final_param_norms"}) {
    fs::remove_all(copy);
    fs::copy(own / "mlp_sgd_legacy", copy);
    Json reference = Json::parse(std::ifstream(copy / "reference.json"));
    Json& last = reference[table].is_array() ? reference[table].back() : reference[table].begin().value();
    last = last.get<double>() * 1.01;
    if (reference[table].is_array()) reference["losses_f32"] = reference["losses"];
    std::ofstream(copy / "reference.json") << reference;
    const Json result = check(copy, "");
    EXPECT_FALSE(result.value("pass", true)) << table << ": " << result.dump();
    EXPECT_EQ(result.value("exit", -1), 1) << table;
  }
  fs::remove_all(copy);
}

// PyTorch's gradient of what the loss does not depend on is None; that of what is rounded away is zero.
TEST(CaseFolders, ParametersWithoutAGradientPass) {
  const TemporaryFolder temporary;
  const fs::path copy = temporary / "aside";
  fs::copy(own / "aside_legacy_momentum", copy);
  const Json whole = Json::parse(std::ifstream(copy / "reference.json"));
  const auto with = [&](const Json& aside, const Json& final_norm) {
    Json reference = whole;
    reference["step0_grad_norms"]["aside.weight"] = aside;
    if (aside == "left out") reference["step0_grad_norms"].erase("aside.weight");
    if (!final_norm.is_null()) reference["final_param_norms"]["aside.weight"] = final_norm;
    std::ofstream(copy / "reference.json") << reference;
    return check(copy, "");
  };
  for (const Json& aside : {Json("left out"), Json(), Json(0), Json(0.0)}) expect_pass(with(aside, {}), aside.dump());
  EXPECT_FALSE(with(0.5, {}).value("pass", true)) << "a gradient that the reference has and the plan has not";
  EXPECT_FALSE(with(0, 0.5).value("pass", true)) << "the parameter itself is compared";
}

// A file that is wrong in itself is an error that names it, never a pass.
TEST(CaseFolders, BadReferencesAreNamed) {
  const TemporaryFolder temporary;
  const fs::path copy = temporary / "bad_reference";
  struct Wrong {
    const char *edit, *said;
  };
  const Wrong edits[] = {
      {R"([{"op": "remove", "path": "/losses"}])", "it lacks \"losses\""},
      {R"([{"op": "move", "from": "/final_param_norms", "path": "/final_parm_norms"}])",
       "did you mean final_param_norms?"},
      {R"([{"op": "replace", "path": "/step0_grad_norms", "value": {}}])", "\"step0_grad_norms\" lacks"},
      {R"([{"op": "replace", "path": "/losses/3", "value": "a"}])",
       "\"losses\" holds something that is not a finite number"},
      {R"([{"op": "replace", "path": "/losses/3", "value": 1.5}])", "it contradicts itself: step 3"},
      {R"([{"op": "move", "from": "/final_buffer_norms/bn1.running_var", "path": "/final_buffer_norms/bn1.runing_var"}])",
       "\"final_buffer_norms\" lacks bn1.running_var, which training moves"}};
  const Json whole = Json::parse(std::ifstream(own / "resnet_adamw" / "reference.json"));
  for (const Wrong& wrong : edits) {
    fs::remove_all(copy);
    fs::copy(own / "resnet_adamw", copy);
    std::ofstream(copy / "reference.json") << whole.patch(Json::parse(wrong.edit));
    const Json result = check(copy, "");
    EXPECT_FALSE(result.value("pass", true)) << wrong.edit;
    EXPECT_EQ(result.value("exit", -1), 1) << wrong.edit;
    const std::string error = result.value("error", "");
    EXPECT_NE(error.find("bad_reference/reference.json: "), std::string::npos) << error;
    EXPECT_NE(error.find(wrong.said), std::string::npos) << error;
  }
  // What is no JSON says where, what is too deep says that, and what is no object says that.
  for (const auto& [text, said] : {std::pair<std::string, const char*>("{", " is not JSON: "),
                                   {std::string(100000, '['), ": lists and objects nest deeper than 64"},
                                   {"[1]", ": it is not a JSON object"}}) {
    std::ofstream(copy / "reference.json") << text;
    const std::string error = check(copy, "").value("error", "");
    EXPECT_NE(error.find(std::string("bad_reference/reference.json") + said), std::string::npos) << error;
  }
  fs::remove_all(copy);
}

// A tensor that only rounding moves has no digit to compare where the reference says so, and says what it may spread
// by.
TEST(CaseFolders, TolerancesAreThoseOfTheFile) {
  const TemporaryFolder temporary;
  const fs::path copy = temporary / "tolerances";
  fs::remove_all(copy);
  fs::copy(own / "mlp_sgd_legacy", copy);
  const Json whole = Json::parse(std::ifstream(copy / "reference.json"));
  const std::string name = whole["final_param_norms"].begin().key();
  const double norm = whole["final_param_norms"][name];
  const auto passes = [&](const Json& reference) {
    std::ofstream(copy / "reference.json") << reference;
    return check(copy, "").value("pass", false);
  };
  Json reference = whole;
  reference["final_param_norms"][name] = norm * 1.002;
  EXPECT_FALSE(passes(reference));
  reference["final_param_norms_f32"] = Json::array({reference["final_param_norms"], whole["final_param_norms"]});
  EXPECT_TRUE(passes(reference)) << "three times a spread of 0.2 % is allowed";
  reference["final_param_norms"][name] = norm * 1.02;
  EXPECT_FALSE(passes(reference)) << "but no more than 1 %";
  reference["insensitive"] = {name};
  EXPECT_TRUE(passes(reference));
  fs::remove_all(copy);
}

// A statistic that is zero in truth may be listed as well, and one that should be zero and is not fails.
TEST(CaseFolders, StatisticsThatAreZeroInTruth) {
  const TemporaryFolder temporary;
  const fs::path copy = temporary / "zero_statistics";
  fs::copy(own / "resnet_adamw", copy);
  const Json whole = Json::parse(std::ifstream(copy / "reference.json"));
  const auto result = [&](double norm, const std::vector<std::string>& insensitive) {
    Json reference = whole;
    reference["final_buffer_norms"]["bn1.running_mean"] = norm;
    if (!insensitive.empty()) reference["insensitive"] = insensitive;
    std::ofstream(copy / "reference.json") << reference;
    return check(copy, "");
  };
  EXPECT_FALSE(result(1e-13, {}).value("pass", true));
  EXPECT_TRUE(result(1e-13, {"bn1.running_mean"}).value("pass", false));
  EXPECT_NE(result(1e-13, {"bn1.mean"}).value("error", "").find("\"insensitive\" names bn1.mean, which neither"),
            std::string::npos);
}

// Statistics may start elsewhere, but must move as batch norm moves them.
TEST(CaseFolders, WrongRunningStatisticsFail) {
  const TemporaryFolder temporary;
  const fs::path copy = temporary / "wrong_statistics";
  fs::remove_all(copy);
  fs::copy(own / "resnet_adamw", copy);
  const Json whole = Json::parse(std::ifstream(copy / "reference.json"));
  ASSERT_FALSE(whole["final_buffer_norms"].empty());
  for (const auto& [name, norm] : whole["final_buffer_norms"].items()) {
    Json reference = whole;
    reference["final_buffer_norms"][name] = norm.get<double>() * 1.01;
    std::ofstream(copy / "reference.json") << reference;
    const Json result = check(copy, "");
    EXPECT_FALSE(result.value("pass", true)) << name << ": " << result.dump();
  }
  fs::remove_all(copy);
}

}  // namespace
}  // namespace epl::cases_test
