#include "core/program/timeline.h"

#include <algorithm>

#include "core/base/check.h"

namespace epl {

Timeline::Timeline(const Program& program) : program_(program), begins_(program.blocks.size()) {
  for (const BlockCall& call : program.calls) {
    const auto b = static_cast<size_t>(program.find(call.id()));
    EPL_CHECK(b < begins_.size(), "a call of a block that is not there");
    const bool interleaved = block_is_interleaved(call.block);
    if (!interleaved && !begins_[b].empty()) {
      call_begins_.push_back(begins_[b].back());
      continue;
    }
    call_begins_.push_back(end_);
    stretches_.push_back({static_cast<int>(b), interleaved ? call.micro_batch : -1, end_});
    begins_[b].push_back(end_);
    end_ += program.blocks[b].last - program.blocks[b].first;
  }
}

size_t Timeline::block(int position) const {
  const auto within = [&](const Block& b) { return position >= b.first && position < b.last; };
  const auto found = std::ranges::find_if(program_.blocks, within);
  EPL_CHECK(found != program_.blocks.end(), "instruction ", position, " is of no block");
  return static_cast<size_t>(found - program_.blocks.begin());
}

int Timeline::time(int position, size_t iteration) const {
  const size_t b = block(position);
  // The decisions of a plan file may say that a value of one micro-batch is used where micro-batches have no
  // iterations.
  EPL_CHECK(iteration < begins_[b].size(), "instruction ", position, " has no iteration ", iteration);
  return begins_[b][iteration] + position - program_.blocks[b].first;
}

}  // namespace epl
