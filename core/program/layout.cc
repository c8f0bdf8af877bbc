// Addresses. What lives from one call to a later one of its micro-batch is packed into a frame, of which there is one
// for each micro-batch in flight; what lives in one call takes gaps of the frame that is its micro-batch's, if it fits.
// The frames and everything else are then laid out in the arena by their lifetimes.
#include <algorithm>

#include "core/program/lowering.h"

namespace epl {
namespace {

using Space = Location::Space;

struct Frame {
  int first_block = 0, last_block = 0;
  std::vector<int> ranges;
  int64_t bytes = 0;  // of one
  int32_t slots = 1;
};

class Layout {
 public:
  explicit Layout(Lowering& lowering) : l_(lowering), program_(lowering.program) {}

  void run() {
    find_frames();
    for (Frame& frame : frames_) pack(frame);
    place_in_arena();
    write_locations();
    write_releases();
  }

 private:
  LiveRange& range(int r) { return l_.ranges[static_cast<size_t>(r)]; }
  static bool crosses(const LiveRange& r) { return r.first_block >= 0 && r.first_block != r.last_block; }

  void find_frames() {
    frame_of_.assign(l_.ranges.size(), -1);
    for (int r = 0; r < static_cast<int>(l_.ranges.size()); ++r) {
      const LiveRange& live = range(r);
      if (!crosses(live) || live.kept) continue;
      const auto same = [&](const Frame& f) {
        return f.first_block == live.first_block && f.last_block == live.last_block;
      };
      auto frame = std::ranges::find_if(frames_, same);
      if (frame == frames_.end()) {
        frames_.push_back({live.first_block, live.last_block, {}, 0, slots(live.first_block, live.last_block)});
        frame = std::prev(frames_.end());
      }
      frame_of_[static_cast<size_t>(r)] = static_cast<int>(frame - frames_.begin());
      frame->ranges.push_back(r);
    }
  }

  // The fewest slots with which no micro-batch takes that of another which is still in flight.
  int32_t slots(int first_block, int last_block) const {
    const int64_t count = program_.micro_batches();
    std::vector<int> begin(static_cast<size_t>(count)), end(static_cast<size_t>(count));
    for (int c = 0; c < static_cast<int>(program_.calls.size()); ++c) {
      const BlockCall& call = program_.calls[static_cast<size_t>(c)];
      if (call.block == program_.blocks[static_cast<size_t>(first_block)].kind)
        begin[static_cast<size_t>(call.micro_batch)] = c;
      if (call.block == program_.blocks[static_cast<size_t>(last_block)].kind)
        end[static_cast<size_t>(call.micro_batch)] = c;
    }
    int64_t slots = 1;
    const auto clash = [&] {
      for (int64_t m = 0; m + slots < count; ++m) {
        if (begin[static_cast<size_t>(m + slots)] < end[static_cast<size_t>(m)]) return true;
      }
      return false;
    };
    while (clash()) ++slots;
    return static_cast<int32_t>(slots);
  }

  // Values first, which say how large the frame is; then, the largest first, what a call needs for itself where there
  // is a gap in place and time.
  void pack(Frame& frame) {
    std::vector<Storage> packed;
    for (int r : frame.ranges) packed.push_back({range(r).bytes, range(r).first, range(r).last});
    frame.bytes = aligned_bytes(lay_out(packed).bytes);
    for (size_t i = 0; i < packed.size(); ++i) range(frame.ranges[i]).offset = packed[i].offset;
    std::vector<int> scratch;
    for (int r = 0; r < static_cast<int>(l_.ranges.size()); ++r) {
      const LiveRange& live = range(r);
      const bool inside = live.first_block >= frame.first_block && live.last_block <= frame.last_block;
      if (inside && !crosses(live) && !live.kept && frame_of_[static_cast<size_t>(r)] < 0) scratch.push_back(r);
    }
    std::ranges::stable_sort(scratch, std::ranges::greater(), [&](int r) { return range(r).bytes; });
    for (int r : scratch) {
      const int64_t offset = gap(packed, range(r), frame.bytes);
      if (offset < 0) continue;
      range(r).offset = offset;
      packed.push_back({range(r).bytes, range(r).first, range(r).last, offset});
      frame_of_[static_cast<size_t>(r)] = static_cast<int>(&frame - frames_.data());
      frame.ranges.push_back(r);
    }
    for (int r : frame.ranges) {
      range(r).stride = frame.bytes;
      range(r).slots = frame.slots;
    }
  }

  // The lowest offset below `limit` at which `wanted` overlaps nothing that is alive with it; -1: none.
  static int64_t gap(const std::vector<Storage>& packed, const LiveRange& wanted, int64_t limit) {
    std::vector<std::pair<int64_t, int64_t>> taken;
    for (const Storage& s : packed) {
      if (s.first <= wanted.last && wanted.first <= s.last)
        taken.emplace_back(s.offset, s.offset + aligned_bytes(s.bytes));
    }
    std::ranges::sort(taken);
    int64_t offset = 0;
    for (const auto& [begin, end] : taken) {
      if (offset + wanted.bytes <= begin) break;
      offset = std::max(offset, end);
    }
    return offset + wanted.bytes <= limit ? offset : -1;
  }

  void place_in_arena() {
    std::vector<Storage> storages;
    std::vector<int> of_range(l_.ranges.size(), -1), of_frame;
    for (int r = 0; r < static_cast<int>(l_.ranges.size()); ++r) {
      if (frame_of_[static_cast<size_t>(r)] >= 0) continue;
      LiveRange& live = range(r);
      if (live.kept) keep(live);
      of_range[static_cast<size_t>(r)] = static_cast<int>(storages.size());
      storages.push_back({live.slots > 1 ? live.slots * live.stride : live.bytes, live.first, live.last});
    }
    for (const Frame& frame : frames_) {
      const Loop& loop = *l_.loop_of(program_.blocks[static_cast<size_t>(frame.first_block)].first);
      of_frame.push_back(static_cast<int>(storages.size()));
      storages.push_back({frame.slots * frame.bytes, loop.first, loop.last - 1});
    }
    const MemoryLayout layout = lay_out(storages);
    program_.arena_live_bytes = layout.largest_live;
    for (const Storage& s : storages) program_.arena_bytes = std::max(program_.arena_bytes, s.offset + s.bytes);
    for (size_t r = 0; r < l_.ranges.size(); ++r) {
      const int storage = of_range[r] >= 0 ? of_range[r] : of_frame[static_cast<size_t>(frame_of_[r])];
      l_.ranges[r].offset += storages[static_cast<size_t>(storage)].offset;
    }
  }

  // What a send reads has a place of its own while its loop runs, and slots if it lives from call to call.
  void keep(LiveRange& live) {
    const Loop* loop = l_.loop_of(live.last);
    if (!loop || live.first_block < 0) return;
    live.first = loop->first;
    live.slots = crosses(live) ? slots(live.first_block, live.last_block) : 1;
    live.stride = aligned_bytes(live.bytes);
  }

  Location location(Value v) const {
    if (!v) return {};
    const auto root = static_cast<size_t>(l_.root[static_cast<size_t>(v.index)]);
    if (l_.place[root].space != Space::none) return l_.place[root];
    return location(l_.ranges[static_cast<size_t>(l_.range[root])]);
  }
  static Location location(const LiveRange& live) {
    return {
        .space = Space::arena, .offset = live.offset, .stride = live.slots > 1 ? live.stride : 0, .slots = live.slots};
  }

  void write_locations() {
    for (size_t p = 0; p < l_.operands.size(); ++p) {
      Instruction& in = program_.instructions[p];
      for (Value v : l_.operands[p].inputs) in.inputs.push_back(location(v));
      for (Value v : l_.operands[p].outputs) in.outputs.push_back(location(v));
      if (l_.workspace[p] >= 0) in.workspace = location(range(l_.workspace[p]));
    }
    for (size_t port = 0; port < l_.local.outputs.size(); ++port) {
      const LocalPort& out = l_.local.outputs[port];
      const Value v = l_.graph.outputs[port].value;
      program_.outputs.push_back({out.name, out.global_type, l_.graph.type(v), out.dim, out.outer, out.axes,
                                  location(v), static_cast<int>(port)});
    }
  }

  void write_releases() {
    for (const LiveRange& live : l_.ranges) {
      const Loop* loop = l_.loop_of(live.last);
      const bool last_turn = loop && live.first <= loop->first && live.last == loop->last - 1;
      Instruction::Release release{live.offset, live.bytes, last_turn};
      release.sent = live.kept;
      if (live.slots > 1 && live.kept) {
        release.bytes = live.slots * live.stride;
      } else if (live.slots > 1) {
        release.stride = live.stride;
        release.slots = live.slots;
      }
      program_.instructions[static_cast<size_t>(live.last)].releases.push_back(release);
    }
  }

  Lowering& l_;
  Program& program_;
  std::vector<Frame> frames_;
  std::vector<int> frame_of_;  // by range; -1: none
};

}  // namespace

void lay_out_program(Lowering& lowering) { Layout(lowering).run(); }

}  // namespace epl
