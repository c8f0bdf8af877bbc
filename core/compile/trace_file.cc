#include "core/compile/trace_file.h"

#include <algorithm>
#include <cstdio>
#include <map>

#include "core/backend/cost_model.h"
#include "core/base/json.h"
#include "core/program/describe.h"
#include "core/program/transfer.h"

namespace epl {
namespace {

std::string ranks_text(const std::vector<int>& ranks, int but) {
  std::vector<std::string> names;
  for (const int rank : ranks) {
    if (rank != but) names.push_back(cat(rank));
  }
  return cat(names.size() == 1 ? "rank " : "ranks ", join(names, ", "));
}

class TraceFile {
 public:
  TraceFile(const CompiledPlan& plan, const StepTrace& trace)
      : plan_(plan.entries().front().plan), begin_(trace.begin()), end_(trace.end()) {}

  void add(const RankTrace& rank) {
    rank_ = rank.rank;
    name_process(rank);
    last_end_.assign(static_cast<size_t>(rank.program->streams), begin_);
    for (size_t e = 0; e < rank.events.size();) e = add_call(rank, e);
    const RankTime time = time_of(rank, begin_, end_);
    times_.push_back({{"rank", rank.rank},
                      {"class", plan_.virtual_device_name(rank.virtual_device)},
                      {"computing", time.computing},
                      {"moving", time.moving},
                      {"waiting", time.waiting}});
  }

  std::string finish(std::string_view device) {
    const Json other = {{"device", device}, {"seconds", end_ - begin_}, {"ranks", times_}};
    return cat("{\"displayTimeUnit\": \"ms\", \"otherData\": ", print_json(other), ", \"traceEvents\": [\n", events_,
               "\n]}\n");
  }

 private:
  void name_process(const RankTrace& rank) {
    const auto meta = [&](const char* what, int stream, const std::string& name) {
      write({{"ph", "M"}, {"pid", rank_}, {"tid", stream}, {"name", what}, {"args", {{"name", name}}}});
    };
    meta("process_name", 0, cat("rank ", rank_, " (", plan_.virtual_device_name(rank.virtual_device), ")"));
    for (int s = 0; s < rank.program->streams; ++s) meta("thread_name", s, stream_name(*rank.program, s));
  }

  static std::string stream_name(const Program& program, int stream) {
    if (stream == 0) return "calls and instructions";
    const auto in = std::ranges::find(program.instructions, stream, &Instruction::stream);
    const std::string_view does = in->transfer->sends ? "sends" : in->group >= 0 ? "collectives" : "copies";
    return cat(does, ", stream ", stream);
  }

  // Instructions of one call lie within it; gives the first event behind it.
  size_t add_call(const RankTrace& rank, size_t first) {
    const TraceEvent& head = rank.events[first];
    size_t last = first;
    double from = 0, to = -1;  // on the first stream; sends go on
    for (; last < rank.events.size(); ++last) {
      const TraceEvent& event = rank.events[last];
      if (event.call != head.call || event.step != head.step) break;
      const Instruction* in = rank.instruction(event);
      if (in && in->stream != 0) continue;
      if (to < 0) from = event.begin;
      to = std::max(to, event.end);
    }
    const BlockCall& call = rank.program->calls[static_cast<size_t>(head.call)];
    if (to >= 0) {
      write_slice(0, cat(block_name(call.block), block_loops(call.block) ? cat(" ", call.micro_batch) : ""), "call",
                  from, to, {{"step", head.step}, {"micro_batch", call.micro_batch}});
    }
    for (size_t e = first; e < last; ++e) add_event(rank, rank.events[e]);
    return last;
  }

  void add_event(const RankTrace& rank, const TraceEvent& event) {
    const Instruction* in = rank.instruction(event);
    if (!in) {
      add_moving(event, "agreement on the step", 0,
                 {{"what", collective_name(Collective::Kind::all_reduce)}, {"bytes", 8}}, "all ranks");
    } else if (in->group < 0) {
      Json args = {{"op", in->query->op}, {"bytes", in->query->bytes}, {"flops", in->query->flops}};
      if (in->row) args["kernel"] = in->row->name;
      if (!in->transfer) args["rate"] = work_of(*in->query).kind() == WorkKind::product ? "products" : "elementwise";
      write_slice(in->stream, in->name, in->transfer ? in->transfer->name : "compute", event.begin, event.end, args);
    } else if (rank.group(event)) {
      const std::vector<int>& members = *rank.group(event);
      const ProgramGroup& group = rank.program->groups[static_cast<size_t>(in->group)];
      const Json args = {
          {"what", in->transfer->name},
          {"over", group.virtual_device < 0 ? group.axis : plan_.virtual_device_name(group.virtual_device)},
          {"ranks", members},
          {"bytes", largest_side(*in)}};
      add_moving(event, in->name, in->stream, args, ranks_text(members, rank.rank));
      if (!in->transfer->counterpart.empty()) add_arrow(event, *in);
    }
  }

  // A stream's commands come one after another, whenever they were issued.
  void add_moving(const TraceEvent& event, const std::string& name, int stream, const Json& args,
                  const std::string& others) {
    double& before = last_end_[static_cast<size_t>(stream)];
    const double begin = stream == 0 ? event.begin : std::max(event.begin, before);
    const double moves = std::max(event.moves, begin);
    if (moves > begin) write_slice(stream, cat("waits for ", others), "waiting", begin, moves, {{"for", name}});
    write_slice(stream, name, "moving", moves, event.end, args);
    before = std::max(before, event.end);
  }

  // From a send to its receive.
  void add_arrow(const TraceEvent& event, const Instruction& in) {
    Json arrow = {{"ph", in.transfer->sends ? "s" : "f"},
                  {"id", event.collective_call},
                  {"pid", rank_},
                  {"tid", in.stream},
                  {"cat", "message"},
                  {"name", "message"},
                  {"ts", microseconds(in.transfer->sends ? event.moves : event.end)}};
    if (!in.transfer->sends) arrow["bp"] = "e";
    write(arrow);
  }

  double microseconds(double seconds) const { return (seconds - begin_) * 1e6; }

  void write_slice(int stream, const std::string& name, const std::string& category, double from, double to,
                   const Json& args) {
    write({{"ph", "X"},
           {"pid", rank_},
           {"tid", stream},
           {"ts", microseconds(from)},
           {"dur", (to - from) * 1e6},
           {"cat", category},
           {"name", name},
           {"args", args}});
  }

  void write(const Json& event) { events_ += cat(events_.empty() ? "" : ",\n", print_json(event)); }

  const Plan& plan_;
  double begin_, end_;
  int rank_ = 0;
  std::vector<double> last_end_;  // of the current rank, by stream
  std::string events_;
  Json times_ = Json::array();
};

}  // namespace

std::string print_trace(const CompiledPlan& plan, const StepTrace& trace, std::string_view device) {
  TraceFile file(plan, trace);
  for (const RankTrace& rank : trace.ranks) file.add(rank);
  return file.finish(device);
}

}  // namespace epl
