// The rows, and what they are in the numbers of a search.
#include "bench/plans/pairs.h"

#include <algorithm>
#include <bit>

#include "core/backend/device.h"
#include "core/backend/sheet.h"

namespace epl::plans {
namespace {

using credibility::Transformer;

// GPT: "Language Models are Few-Shot Learners" (Brown and others, 2020), table 2.1, and the 39 billion of Narayanan and
// others, 2021. BERT: Devlin and others, 2018. LLaMA: "The Llama 3 Herd of Models", 2024, table 3. Mixtures of experts:
// "GLaM" (Du and others, 2021), table 4, "M6-T" (Yang and others, 2021), "Whale" (Jia and others, 2022), and "M6-10T"
// (Lin and others, 2021), whose experts are ten trillion parameters here.
constexpr Model all_models[] = {
    {"bert-large", {.hidden = 1024, .layers = 24, .heads = 16, .sequence = 512, .vocabulary = 30720}},
    {"gpt-125m", {.hidden = 768, .layers = 12, .heads = 12, .sequence = 1024, .vocabulary = 51200}},
    {"gpt-760m", {.hidden = 1536, .layers = 24, .heads = 16, .sequence = 2048, .vocabulary = 51200}},
    {"gpt-2.7b", {.hidden = 2560, .layers = 32, .heads = 32, .sequence = 2048, .vocabulary = 51200}},
    {"gpt-6.7b", {.hidden = 4096, .layers = 32, .heads = 32, .sequence = 2048, .vocabulary = 51200}},
    {"gpt-13b", {.hidden = 5120, .layers = 40, .heads = 40, .sequence = 2048, .vocabulary = 51200}},
    {"gpt-39b", {.hidden = 8192, .layers = 48, .heads = 64, .sequence = 2048, .vocabulary = 51200}},
    {"gpt-175b", {.hidden = 12288, .layers = 96, .heads = 96, .sequence = 2048, .vocabulary = 51200}},
    {"llama-8b",
     {.hidden = 4096,
      .layers = 32,
      .heads = 32,
      .sequence = 8192,
      .vocabulary = 128256,
      .shared_heads = 8,
      .inner = 14336,
      .gated = true,
      .tied = false}},
    {"llama-70b",
     {.hidden = 8192,
      .layers = 80,
      .heads = 64,
      .sequence = 8192,
      .vocabulary = 128256,
      .shared_heads = 8,
      .inner = 28672,
      .gated = true,
      .tied = false}},
    {"llama-405b",
     {.hidden = 16384,
      .layers = 126,
      .heads = 128,
      .sequence = 8192,
      .vocabulary = 128256,
      .shared_heads = 8,
      .inner = 53248,
      .gated = true,
      .tied = false}},
    {"glam-1.9b", {.hidden = 768, .layers = 12, .heads = 12, .sequence = 1024, .vocabulary = 256000}, 64, 2},
    {"glam-27b", {.hidden = 2048, .layers = 24, .heads = 16, .sequence = 1024, .vocabulary = 256000}, 64, 2},
    {"m6-moe-1t",
     {.hidden = 1024, .layers = 24, .heads = 16, .sequence = 512, .vocabulary = 21248, .inner = 21248},
     960,
     1,
     1},
    {"m6-moe-10t",
     {.hidden = 1024, .layers = 48, .heads = 16, .sequence = 512, .vocabulary = 21248, .inner = 9984},
     10240,
     1,
     1},
    {"m6-t-100b", {.hidden = 1024, .layers = 24, .heads = 16, .sequence = 512, .vocabulary = 21248}, 512, 2},
};

constexpr double gb = 1e9;
// A host of eight V100 with 736 GiB, as Alibaba's ecs.gn6e-c12g1.24xlarge has.
constexpr double host_of_v100 = 736.0 * 1024 * 1024 * 1024 / 8;
constexpr Cluster all_clusters[] = {
    {"a100", "a100"},
    {"h100", "h100"},
    {"v100", "v100.json", 8, 0, 0, host_of_v100},
    {"l4", "l4"},
    {"rtx4090", "rtx4090"},
    {"cpu", "", 16, 4 * gb, 1.25e9},
    {"cpu-1g", "", 4, 8 * gb, 0.03e9},  // small hosts on Ethernet of 1 Gb/s
};

constexpr Pair all_pairs[] = {
    {"bert-large", "a100", 8, 512},    {"bert-large", "v100", 8, 512},     {"bert-large", "v100", 32, 1024},
    {"bert-large", "v100", 256, 4096}, {"bert-large", "l4", 8, 256},       {"bert-large", "rtx4090", 8, 256},
    {"bert-large", "cpu", 16, 64},     {"bert-large", "cpu-1g", 16, 64},   {"gpt-125m", "a100", 8, 512},
    {"gpt-125m", "h100", 32, 512},     {"gpt-125m", "v100", 32, 512},      {"gpt-125m", "l4", 8, 128},
    {"gpt-125m", "cpu", 16, 32},       {"gpt-125m", "cpu", 64, 128},       {"gpt-125m", "cpu-1g", 8, 32},
    {"gpt-760m", "a100", 8, 512},      {"gpt-760m", "a100", 64, 512},      {"gpt-760m", "h100", 8, 512},
    {"gpt-760m", "v100", 8, 256},      {"gpt-760m", "v100", 64, 512},      {"gpt-760m", "rtx4090", 8, 256},
    {"gpt-760m", "l4", 16, 256},       {"gpt-760m", "cpu", 64, 64},        {"gpt-2.7b", "a100", 8, 512},
    {"gpt-2.7b", "a100", 64, 512},     {"gpt-2.7b", "h100", 16, 512},      {"gpt-2.7b", "v100", 16, 256},
    {"gpt-2.7b", "v100", 128, 512},    {"gpt-2.7b", "rtx4090", 8, 256},    {"gpt-2.7b", "l4", 32, 256},
    {"gpt-6.7b", "a100", 8, 512},      {"gpt-6.7b", "a100", 64, 1024},     {"gpt-6.7b", "h100", 8, 512},
    {"gpt-6.7b", "h100", 256, 1024},   {"gpt-6.7b", "v100", 32, 512},      {"gpt-6.7b", "v100", 256, 1024},
    {"gpt-6.7b", "rtx4090", 32, 256},  {"gpt-6.7b", "l4", 64, 256},        {"gpt-13b", "a100", 16, 512},
    {"gpt-13b", "a100", 128, 1024},    {"gpt-13b", "h100", 64, 1024},      {"gpt-13b", "v100", 64, 512},
    {"gpt-13b", "rtx4090", 64, 512},   {"gpt-39b", "a100", 64, 1536},      {"gpt-39b", "a100", 512, 1536},
    {"gpt-39b", "h100", 128, 1536},    {"gpt-39b", "v100", 256, 1536},     {"gpt-175b", "a100", 512, 1536},
    {"gpt-175b", "a100", 1024, 1536},  {"gpt-175b", "h100", 1024, 1536},   {"gpt-175b", "h100", 256, 1536},
    {"gpt-175b", "v100", 1024, 1536},  {"llama-8b", "a100", 16, 256},      {"llama-8b", "h100", 8, 256},
    {"llama-8b", "h100", 128, 1024},   {"llama-70b", "a100", 256, 1024},   {"llama-70b", "h100", 64, 512},
    {"llama-70b", "h100", 512, 1024},  {"llama-405b", "h100", 1024, 1024}, {"glam-1.9b", "a100", 8, 512},
    {"glam-1.9b", "v100", 64, 1024},   {"glam-1.9b", "h100", 16, 512},     {"glam-27b", "a100", 64, 1024},
    {"glam-27b", "h100", 64, 1024},    {"glam-27b", "v100", 64, 1024},     {"m6-t-100b", "v100", 128, 2048},
};

// Kernels of a layer, its passes through memory, and attention as one kernel: as of bench/credibility's `compiled`.
const credibility::Software software = {
    .name = "compiled", .forward_kernels = 11, .backward_kernels = 22, .passes = 12, .logits = 3, .attention = 2};
// With kernels that keep what products give alone, a layer keeps so much less.
constexpr double without_elementwise = 0.65;
constexpr int64_t most_experts = 512, most_split = 8;
// Bytes that a layer keeps for each two bytes of its input: with a split over r ranks 10 + 24 / r, and 34 / r where
// what lies between the parts of the split is cut too (Korthikanti and others, 2022).
constexpr double between_splits = 10, inside_splits = 24;

template <class Row> const Row* find(std::span<const Row> rows, std::string_view name) {
  const auto found = std::ranges::find_if(rows, [&](const Row& row) { return row.name == name; });
  return found == rows.end() ? nullptr : &*found;
}

struct Hosts {
  Machine machine;
  double bytes = 0;
};

Result<Hosts> hosts_of(const Cluster& cluster, const std::string& folder) {
  const std::string device = cluster.device;
  if (device.empty()) {
    Machine machine = processor_core();
    machine.links = {{.ranks = cluster.host, .bandwidth = machine.links.front().bandwidth, .seconds = 1e-6},
                     {.ranks = 0, .bandwidth = cluster.core_network, .seconds = 3e-5}};
    return Hosts{machine, cluster.core_bytes};
  }
  if (device.ends_with(".json")) {
    EPL_ASSIGN(const DeviceSheet sheet, read_device_sheet(cat(folder, "/", device)));
    return Hosts{sheet.machine, static_cast<double>(sheet.memory_bytes)};
  }
  for (const DeviceSheet& sheet : backend_table().find("cuda")->sheets) {
    if (sheet.name == device) return Hosts{sheet.machine, static_cast<double>(sheet.memory_bytes)};
  }
  return invalid("no sheet of ", device);
}

// A pass over a layer takes as long for each sample, and something once.
PerCall line(double one, double two) {
  const double sample = std::max(0.0, two - one);
  return {std::max(0.0, one - sample), sample};
}

SearchLayer per_call(const SearchLayer& one, const SearchLayer& two) {
  SearchLayer layer = one;
  layer.forward = line(one.forward.once, two.forward.once);
  layer.backward = line(one.backward.once, two.backward.once);
  return layer;
}

// Nothing is computed again yet: all but products may be, or all but what comes in.
void add_ways(SearchLayer& layer, const Model& model, const SearchProblem& problem, double element, double ranks,
              bool sequence) {
  const double row = element * static_cast<double>(model.sizes.sequence * model.sizes.hidden) / (sequence ? ranks : 1);
  if (sequence) {
    const double share = (between_splits + inside_splits) / ranks / (between_splits + inside_splits / ranks);
    layer.kept *= share;
    layer.working *= share;
  }
  const double passes = problem.cost.memory(software.passes * row / ranks);
  layer.again = {{{0, passes}, without_elementwise * layer.kept}, {layer.forward, row}};
}

// Weights have as many bytes as what layers pass on. Each token goes to `chosen` experts, as the product of all would
// be that many times as wide.
void add_experts(SearchLayer& layer, const Model& model, const SearchProblem& problem, double element,
                 int64_t shared_by) {
  const auto hidden = static_cast<double>(model.sizes.hidden);
  const double inner = model.sizes.inner > 0 ? static_cast<double>(model.sizes.inner) : 4 * hidden;
  const double of_one = element * 2 * hidden * inner, chosen = static_cast<double>(model.chosen);
  layer.weights -= of_one;
  const double all = of_one * static_cast<double>(model.experts);
  (shared_by > 1 ? layer.expert_weights : layer.weights) += all / static_cast<double>(shared_by);
  const auto sequence = static_cast<double>(model.sizes.sequence);
  const DType dtype = element == 2 ? DType::f16 : DType::f32;
  const double more = (chosen - 1) * problem.cost.product(dtype, {.m = sequence, .n = 2 * inner, .k = hidden});
  layer.forward.sample += more;
  layer.backward.sample += 2 * more;
  layer.kept *= 1 + (chosen - 1) / 2;
  if (shared_by == 1) return;
  // Tokens go to their experts and come back, and so do their gradients.
  const auto ranks = static_cast<double>(shared_by);
  const RankGroup group = RankGroup::of_first(shared_by);
  const double bytes = chosen * element * sequence * hidden / ranks;
  const double once = problem.cost.collective(Collective::Kind::all_to_all, group, 0);
  const double sample = problem.cost.moving(Collective::Kind::all_to_all, group, bytes);
  for (PerCall* pass : {&layer.forward, &layer.backward}) *pass = {pass->once + 2 * once, pass->sample + 2 * sample};
}

SearchForm form_of(const SearchForm& one, const SearchForm& two, const Model& model, const SearchProblem& problem,
                   double element, int64_t shared_by, bool sequence) {
  SearchForm form{.name = one.ranks > 1 ? cat(one.name, sequence ? " by sequence" : "") : std::string(),
                  .ranks = one.ranks,
                  .sequence = sequence,
                  .experts = shared_by,
                  .staged = shared_by == 1,
                  .kinds = {}};
  if (shared_by > 1) form.name = cat("experts over ", shared_by, " ranks");
  for (size_t k = 0; k < one.kinds.size(); ++k) form.kinds.push_back(per_call(one.kinds[k], two.kinds[k]));
  form.kinds.push_back(form.kinds[1]);  // the layer with experts
  if (model.experts > 0) add_experts(form.kinds[3], model, problem, element, shared_by);
  for (const size_t k : {size_t{1}, size_t{3}})
    add_ways(form.kinds[k], model, problem, element, static_cast<double>(one.ranks), sequence);
  return form;
}

}  // namespace

std::span<const Model> models() { return all_models; }
std::span<const Cluster> clusters() { return all_clusters; }
std::span<const Pair> pairs() { return all_pairs; }

int64_t host_of(const Pair& pair) { return find(clusters(), pair.cluster)->host; }

Result<SearchProblem> problem_of(const Pair& pair, const std::string& folder) {
  const Model* model = find(models(), pair.model);
  const Cluster* cluster = find(clusters(), pair.cluster);
  if (!model || !cluster) return invalid("no model ", pair.model, " or no cluster ", pair.cluster);
  EPL_ASSIGN(const Hosts hosts, hosts_of(*cluster, folder));
  // Of processors in float32 with Adam's two moments, else mixed precision with what it keeps in float32.
  credibility::Training training{.buckets = 5};
  if (cluster->core_bytes > 0)
    training = {.dtype = DType::f32, .weight = 4, .gradient = 4, .states = 8, .buckets = 5, .element = 4};
  std::vector<int64_t> splits = {1};
  for (int64_t ranks = 2; ranks <= std::min({cluster->host, pair.ranks, most_split}); ranks *= 2) {
    if (model->experts == 0 && model->sizes.heads % ranks == 0) splits.push_back(ranks);
  }
  SearchProblem problem = credibility::problem_of(model->sizes, software, training, hosts.machine, 1, splits);
  const SearchProblem twice = credibility::problem_of(model->sizes, software, training, hosts.machine, 2, splits);
  std::vector<int64_t> shared_by = {1};
  for (int64_t ranks = 2; ranks <= std::min({model->experts, pair.ranks, most_experts}); ++ranks) {
    if (model->experts % ranks == 0 && pair.ranks % ranks == 0) shared_by.push_back(ranks);
  }
  std::vector<SearchForm> forms;
  for (size_t f = 0; f < problem.forms.size(); ++f) {
    for (const bool sequence : {false, true}) {
      if (sequence && problem.forms[f].ranks == 1) continue;
      for (const int64_t experts : shared_by)
        forms.push_back(
            form_of(problem.forms[f], twice.forms[f], *model, problem, training.element, experts, sequence));
    }
  }
  problem.forms = std::move(forms);
  const auto every = static_cast<size_t>(model->every);
  for (size_t l = every; model->experts > 0 && l + 1 < problem.layers.size(); l += every) problem.layers[l] = 3;
  problem.ranks = pair.ranks;
  problem.batch = pair.batch;
  problem.bytes = hosts.bytes;
  problem.beside_bytes = cluster->beside;
  return problem;
}

}  // namespace epl::plans
