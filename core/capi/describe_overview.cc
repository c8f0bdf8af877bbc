// The document "overview" of a plan: what runs where, when and why, and what is in memory over a step.
#include <algorithm>

#include "core/capi/describe.h"
#include "core/compile/overview.h"
#include "core/compile/plan_memory.h"

namespace epl::capi {
namespace {

Json describe_time(const RankTime& time) {
  return {{"computing", time.computing}, {"moving", time.moving}, {"waiting", time.waiting}};
}

Json describe_axes(const Mesh& mesh) {
  static constexpr std::string_view kinds[] = {"rank", "time", "unit"};
  Json axes = Json::array();
  for (const MeshAxis& axis : mesh.axes)
    axes.push_back({{"name", axis.name}, {"size", axis.size}, {"kind", kinds[static_cast<size_t>(axis.kind)]}});
  return axes;
}

Json describe_task_graphs(const Plan& plan, int virtual_device) {
  Json out = Json::array();
  for (const TaskGraph& one : plan.task_graphs) {
    if (one.virtual_device == virtual_device)
      out.push_back({{"name", one.scope}, {"stage", one.stage}, {"nodes", one.nodes}});
  }
  return out;
}

// Of a rank at its peak, in each memory of which it has some.
Json describe_memories(const CompiledPlan& plan, int virtual_device) {
  Json out = Json::object();
  for (const MemoryKind kind : memory_kinds) {
    const int64_t bytes = PlanMemory(plan).peak(virtual_device, kind);
    if (bytes > 0) out[std::string(memory_kind_name(kind))] = bytes;
  }
  return out;
}

Json describe_virtual_device(const CompiledPlan& plan, const Overview& overview, size_t c) {
  const Entry& entry = plan.entries().front();
  const Overview::VirtualDevice& one = overview.virtual_devices[c];
  const Mesh& mesh = entry.plan.meshes[c];
  const int at = static_cast<int>(c);
  Json coordinates = Json::array();
  for (const int rank : mesh.device.ranks) coordinates.push_back(mesh.coordinates(rank).at);
  return {{"name", entry.plan.virtual_device_name(at)},
          {"task_graphs", describe_task_graphs(entry.plan, at)},
          {"ranks", mesh.device.ranks},
          {"axes", describe_axes(mesh)},
          {"places", coordinates},
          {"instructions", entry.programs[c].instructions.size()},
          {"flops", entry.programs[c].flops},
          {"parameters", one.parameters},
          {"parameter_bytes", one.parameter_bytes},
          {"memory_bytes_peak", PlanMemory(plan).peak(at)},
          {"memories", describe_memories(plan, at)},
          {"arena_bytes", entry.programs[c].memories[0].arena_bytes},
          {"forward_seconds", one.forward_seconds},
          {"backward_seconds", one.backward_seconds},
          {"time", describe_time(one.time)},
          {"roofline", describe_roofline(one.roofline)},
          {"links", describe_link_seconds(plan.device()->machine(), one.links.all)},
          {"peak", describe_peak(one.peak)}};
}

// Bytes at each point of memory, by what they are for; kinds of which there are none are left out.
Json describe_held(const Overview::Row& row) {
  Json out = Json::object();
  for (const Held held : helds) {
    const auto of_kind = [held](const HeldBytes& bytes) { return bytes[static_cast<size_t>(held)]; };
    if (std::ranges::none_of(row.held, of_kind)) continue;
    Json bytes = Json::array();
    for (const HeldBytes& at : row.held) bytes.push_back(of_kind(at));
    out[std::string(held_name(held))] = std::move(bytes);
  }
  return out;
}

Json describe_row(const Overview::Row& row) {
  Json spans = Json::array(), memory = Json::array();
  for (const Overview::Span& span : row.spans) {
    Json one = Json::array({span.kind, span.begin, span.end});
    if (span.micro_batch >= 0) one.push_back(span.micro_batch);
    spans.push_back(std::move(one));
  }
  for (const auto& [time, bytes] : row.memory) memory.push_back(Json::array({time, bytes}));
  Json marks = Json::array();
  for (const Overview::Mark& mark : row.marks) {
    marks.push_back(
        {{"what", mark.what}, {"begin", mark.begin}, {"end", mark.end}, {"bytes", mark.bytes}, {"count", mark.count}});
  }
  return {{"ranks", row.ranks}, {"virtual_device", row.virtual_device}, {"spans", spans},
          {"memory", memory},   {"held", describe_held(row)},           {"marks", marks}};
}

Json describe_collective(const Machine& machine, const Overview::Collective& one) {
  return {{"what", one.what},
          {"over", one.axis},
          {"virtual_device", one.virtual_device},
          {"block", one.block},
          {"ranks", one.ranks},
          {"calls", one.calls},
          {"bytes", one.bytes},
          {"moving", one.moving},
          {"waiting", one.waiting},
          {"links", describe_link_seconds(machine, one.links)}};
}

// All shapes of a batch, the first of them as well.
Json describe_shapes(const CompiledPlan& plan) {
  Json out = Json::array();
  for (int shape = 0; shape < plan.shapes(); ++shape) {
    const Entry& entry = *plan.entry(plan.entries().front().kind, shape);
    Json inputs = Json::array();
    for (const Port& port : entry.inputs) inputs.push_back({{"name", port.name}, {"type", port.global_type.text()}});
    out.push_back(
        {{"entry", entry.name()},
         {"batch", entry.plan.batch},
         {"arena_bytes", entry.programs[static_cast<size_t>(PlanMemory(plan).fullest_class())].memories[0].arena_bytes},
         {"inputs", inputs}});
  }
  return out;
}

// What the seconds rest on.
Json describe_basis(const Device& device) {
  const Machine& machine = device.machine();
  Json out = {{"basis", basis_name(machine.basis)}, {"text", basis_text(machine, device.description())}};
  if (machine.basis == Machine::Basis::table) {
    out["error"] = machine.measured.error;
    out["error_90th"] = machine.measured.error_90th;
  }
  return out;
}

}  // namespace

std::string describe_overview(const CompiledPlan& plan, const Overview& overview) {
  const Entry& entry = plan.entries().front();
  const Machine& machine = plan.device()->machine();
  Json out = {{"schema", 1},
              {"entry", entry_name(entry.kind)},
              {"device", plan.device()->description()},
              {"ranks", plan.options().ranks},
              {"threads", plan.threads_per_rank()},
              {"batch", entry.plan.batch},
              {"micro_batches", entry.plan.micro_batches()},
              {"units", entry.plan.units()},
              {"strategy", print_strategy(entry.plan.strategy)},
              {"memory_bytes_peak", PlanMemory(plan).peak()},
              {"predicted_on", overview.device},
              {"seconds", overview.seconds},
              {"seconds_rest_on", describe_basis(*plan.device())},
              {"time", describe_time(overview.time)}};
  add_fit(plan, out);
  out["shapes"] = describe_shapes(plan);
  Json devices = Json::array(), rows = Json::array(), collectives = Json::array(), tensors = Json::array();
  for (size_t c = 0; c < overview.virtual_devices.size(); ++c)
    devices.push_back(describe_virtual_device(plan, overview, c));
  for (const Overview::Row& row : overview.rows) rows.push_back(describe_row(row));
  for (const Overview::Collective& one : overview.collectives) collectives.push_back(describe_collective(machine, one));
  for (const Overview::Tensor& one : overview.tensors) {
    tensors.push_back({{"name", one.name},
                       {"kind", one.kind},
                       {"type", one.type},
                       {"task_graph", one.scope},
                       {"sharding", one.sharding},
                       {"pieces", one.shards},
                       {"why", one.why}});
  }
  out["virtual_devices"] = devices;
  out["rows"] = rows;
  out["collectives"] = collectives;
  out["links"] = describe_links(machine, overview);
  out["tensors"] = tensors;
  std::vector<std::string> notes = plan.notes();
  notes.insert(notes.end(), entry.plan.notes.begin(), entry.plan.notes.end());
  out["notes"] = notes;
  out["tried"] = describe_trials(plan.options().tried);
  Json searched = Json::array();
  for (const SearchTrial& one : plan.options().searched) {
    searched.push_back({{"plan", one.plan},
                        {"rehearsed", one.rehearsed},
                        {"seconds", one.seconds},
                        {"bytes", one.bytes},
                        {"decides", one.decides}});
  }
  out["searched"] = searched;
  return print_json(out);
}

}  // namespace epl::capi
