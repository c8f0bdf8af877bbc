#include <algorithm>

#include "core/backend/device.h"
#include "core/ir/rewriter.h"
#include "core/program/lowering.h"
#include "core/program/moves.h"
#include "core/program/prefetch.h"
#include "core/program/uploads.h"
#include "core/strategy/segments.h"

namespace epl {

Lowering::Lowering(const LocalGraph& local_graph, Graph fused, RegionNodes region_nodes,
                   const LowerOptions& lower_options)
    : local(local_graph),
      graph(std::move(fused)),
      regions(std::move(region_nodes)),
      options(lower_options),
      root(graph.value_count()),
      location(graph.value_count()),
      memory(graph.value_count(), MemoryKind::device),
      shard_offset(graph.value_count()),
      first(graph.value_count(), -1),
      last(graph.value_count(), -1),
      range(graph.value_count(), -1) {}

const Loop* Lowering::loop_of(int position) const {
  const auto found =
      std::ranges::find_if(loops, [&](const Loop& loop) { return position >= loop.first && position < loop.last; });
  return found == loops.end() ? nullptr : &*found;
}

int Program::find(const BlockId& block) const {
  const auto found = std::ranges::find(blocks, block, &Block::id);
  return found == blocks.end() ? -1 : static_cast<int>(found - blocks.begin());
}

bool Program::loops(int position) const {
  const auto within = [position](const Block& b) { return position >= b.first && position < b.last; };
  const auto found = std::ranges::find_if(blocks, within);
  return found != blocks.end() && block_loops(found->id.kind);
}

ProgramMemory& Program::memory(MemoryKind kind) {
  const auto found = std::ranges::find(memories, kind, &ProgramMemory::kind);
  return found != memories.end() ? *found : memories.emplace_back(ProgramMemory{.kind = kind});
}

MemoryBytes Program::arena_bytes() const {
  MemoryBytes out;
  for (const ProgramMemory& memory : memories) out[memory.kind] = memory.arena_bytes;
  return out;
}

int Program::group(const ProgramGroup& wanted) {
  const auto found = std::ranges::find(groups, wanted);
  const auto index = static_cast<int>(found - groups.begin());
  if (found == groups.end()) groups.push_back(wanted);
  return index;
}

namespace {

// All ranks of a virtual device run one program.
Status take_device(const Plan& plan, int virtual_device, LowerOptions& options) {
  if (!options.device) return {};
  Device& all = *options.device;
  const std::vector<int>& ranks = plan.meshes[virtual_device].device.ranks;
  Device& own = all.of_rank(ranks.front());
  const auto is_alike = [&](Device& other) {
    return &other.kernels() == &own.kernels() && other.shares_host_memory() == own.shares_host_memory() &&
           other.stream_kinds() == own.stream_kinds() && other.moves_beside() == own.moves_beside();
  };
  for (const int rank : ranks) {
    if (!is_alike(all.of_rank(rank)))
      return unsupported("ranks ", ranks.front(), " and ", rank,
                         " run one program and have devices of two kinds: ", own.description(), ", and ",
                         all.of_rank(rank).description());
  }
  options.kernels = &own.kernels();
  options.device = &own;
  return {};
}

// What is kept under every split is kept by kernels that have the same bits everywhere.
BitsLevel bits_level(const Strategy& strategy) {
  const std::string& level = strategy.text("reproducible.level");
  return level == "run" ? BitsLevel::run : level == "data" ? BitsLevel::data : BitsLevel::exact;
}

}  // namespace

Result<Lowered> lower(const Plan& plan, LowerOptions options, const Stop& stop) {
  Lowered made;
  EPL_ASSIGN(made.locals, partition(plan));
  options.splits_keep_bits = sums_by_segments(plan);
  options.level = bits_level(plan.strategy);
  for (int c = 0; c < std::ssize(made.locals); ++c) {
    EPL_TRY(stop.check());
    LowerOptions of_device = options;
    EPL_TRY(take_device(plan, c, of_device));
    EPL_ASSIGN(Program program, lower(made.locals[c], of_device));
    made.programs.push_back(std::move(program));
  }
  return made;
}

Result<Program> lower(const LocalGraph& local, const LowerOptions& options) {
  RegionNodes regions;
  Graph graph = options.fuse ? fuse_elementwise(local.graph, options.kernels, &regions) : local.graph;
  if (options.device && !options.device->shares_host_memory()) graph = with_uploads(graph, local.sample_block());
  bool gathers_ahead = false;
  if (options.device && options.device->stream_kinds() > 1) {
    Graph ahead = with_prefetch(graph);
    gathers_ahead = !std::ranges::equal(ahead.nodes(), graph.nodes(), {}, &Node::name, &Node::name);
    graph = std::move(ahead);
  }
  if (options.device && copies_fetches(*options.device) && std::ranges::any_of(graph.nodes(), is_fetch))
    graph = with_fetches_ahead(graph, local, CostModel(of_threads(options.device->machine(), options.threads)));
  Lowering lowering(local, without_dead_nodes(graph), std::move(regions), options);
  lowering.program.gathers_ahead = gathers_ahead;
  EPL_TRY(select_instructions(lowering));
  give_streams(lowering);
  find_lifetimes(lowering);
  lay_out_program(lowering);
  order_streams(lowering.program, options.device ? options.device->stream_kinds() : 1);
  return std::move(lowering.program);
}

}  // namespace epl
