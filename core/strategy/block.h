// What a rank does in one call.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/ir/text.h"

namespace epl {

// The nodes that a rank runs in one call are a block, which has a kind.
enum class BlockKind : uint8_t {
  main,     // forward and backward in one call, for every micro-batch
  once,     // the same for all micro-batches, before them
  pre,      // sums over the batch that samples need, from inputs alone; for every micro-batch
  mid,      // what comes of these sums
  post,     // what comes of sums over all micro-batches, and the update
  forward,  // forward and backward as two blocks, where the calls of several micro-batches interleave
  backward,
  weight,  // of the backward pass, what only the update needs: gradients of weights
};
inline constexpr BlockKind all_blocks[] = {BlockKind::once,    BlockKind::pre,      BlockKind::mid,    BlockKind::main,
                                           BlockKind::forward, BlockKind::backward, BlockKind::weight,  // interleaved
                                           BlockKind::post};
std::string_view block_name(BlockKind kind);
std::optional<BlockKind> block_named(std::string_view name);
bool block_loops(BlockKind kind);  // called for every micro-batch
// Its calls may come between those of other blocks, and a micro-batch's values go from one of these to the next.
bool block_is_interleaved(BlockKind kind);

// What a virtual device does in one call. Interleaved blocks are those of a stage; any other is that of all stages
// of the virtual device, and its `stage` is 0.
struct BlockId {
  int stage = 0;
  BlockKind kind = BlockKind::main;
  std::string text() const;  // "backward", "backward stage 1"
  friend auto operator<=>(const BlockId&, const BlockId&) = default;
};

// A rank runs a block once.
struct BlockCall {
  int stage = 0;
  BlockKind block = BlockKind::main;
  int64_t micro_batch = 0;
  BlockId id() const { return {stage, block}; }
  std::string text() const { return cat(id().text(), " ", micro_batch); }
  friend bool operator==(const BlockCall&, const BlockCall&) = default;
};
// In the order of their first calls, in which they stand in a program.
std::vector<BlockId> blocks_of(const std::vector<BlockCall>& calls);
// Reads what text() has written.
bool parse_call(TextReader& reader, BlockCall& call);
bool parse_block(TextReader& reader, BlockId& block);

}  // namespace epl
