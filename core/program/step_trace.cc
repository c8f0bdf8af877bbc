#include "core/program/step_trace.h"

#include <algorithm>
#include <map>

#include "core/program/transfer.h"

namespace epl {
namespace {

// The calls that some ranks make together: of a group, or from one rank to another.
struct Line {
  struct Call {
    std::vector<TraceEvent*> events;
    TraceEvent* send = nullptr;
  };
  std::vector<Call> calls;
};

// Who makes the calls: the ranks, and of a message who sends it.
struct LineKey {
  std::vector<int> ranks;
  std::string axis;
  int sender = -1;
  friend auto operator<=>(const LineKey&, const LineKey&) = default;
};

class CollectiveCalls {
 public:
  void add(RankTrace& rank) {
    std::map<const Line*, size_t> made;  // calls of this rank
    // By instruction: a map look-up for each event would be most of the work.
    std::vector<Line*> lines(rank.program->instructions.size() + 1, nullptr);
    for (TraceEvent& event : rank.events) {
      event.moves = event.begin;
      const Instruction* in = rank.instruction(event);
      if (in && !rank.group(event)) continue;
      Line*& line = lines[static_cast<size_t>(event.instruction + 1)];
      if (!line) line = &lines_[key_of(rank, in)];
      const size_t number = made[line]++;
      if (number == line->calls.size()) line->calls.emplace_back();
      Line::Call& call = line->calls[number];
      call.events.push_back(&event);
      if (in && in->transfer->sends) call.send = &event;
    }
  }

  void settle() {
    int64_t number = 0;
    for (auto& [key, line] : lines_) {
      for (const Line::Call& call : line.calls) {
        double last = 0, end = 0;
        for (const TraceEvent* event : call.events) {
          last = std::max(last, event->begin);
          end = std::max(end, event->end);
        }
        for (TraceEvent* event : call.events) {
          event->moves = std::clamp(last, event->begin, event->end);
          event->collective_call = number;
        }
        ++number;
        if (!call.send) continue;
        call.send->end = end;
        call.send->moves = last;
      }
    }
  }

 private:
  static LineKey key_of(const RankTrace& rank, const Instruction* in) {
    if (!in) return {.axis = "world"};
    const ProgramGroup& group = rank.program->groups[static_cast<size_t>(in->group)];
    LineKey key{.ranks = rank.members[static_cast<size_t>(in->group)], .axis = group.axis};
    if (in->transfer->counterpart.empty()) return key;
    const bool first = key.ranks.front() == rank.rank;
    key.sender = in->transfer->sends == first ? key.ranks.front() : key.ranks.back();
    return key;
  }

  std::map<LineKey, Line> lines_;
};

}  // namespace

double StepTrace::begin() const {
  double begin = 0;
  bool first = true;
  for (const RankTrace& rank : ranks) {
    for (const TraceEvent& event : rank.events) {
      begin = first ? event.begin : std::min(begin, event.begin);
      first = false;
    }
  }
  return begin;
}

double StepTrace::end() const {
  double end = begin();
  for (const RankTrace& rank : ranks) {
    for (const TraceEvent& event : rank.events) end = std::max(end, event.end);
  }
  return end;
}

void find_collective_calls(StepTrace& trace) {
  CollectiveCalls calls;
  for (RankTrace& rank : trace.ranks) calls.add(rank);
  calls.settle();
}

RankTime time_of(const RankTrace& rank, double begin, double end) {
  RankTime time;
  for (const TraceEvent& event : rank.events) {
    const Instruction* in = rank.instruction(event);
    if (in && in->stream != 0) continue;
    if (in && in->group < 0) {
      time.computing += event.end - event.begin;
    } else {
      time.moving += event.end - event.moves;
    }
  }
  time.waiting = std::max(0.0, end - begin - time.computing - time.moving);
  return time;
}

}  // namespace epl
