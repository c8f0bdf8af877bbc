#include "core/strategy/block.h"

#include <algorithm>

namespace epl {

std::string_view block_name(BlockKind kind) {
  switch (kind) {
    case BlockKind::once:
      return "once";
    case BlockKind::pre:
      return "pre";
    case BlockKind::mid:
      return "mid";
    case BlockKind::main:
      return "main";
    case BlockKind::forward:
      return "forward";
    case BlockKind::backward:
      return "backward";
    case BlockKind::weight:
      return "weight";
    case BlockKind::post:
      return "post";
  }
  return "?";
}

std::optional<BlockKind> block_named(std::string_view name) {
  for (BlockKind kind : all_blocks) {
    if (block_name(kind) == name) return kind;
  }
  return std::nullopt;
}

bool block_loops(BlockKind kind) {
  return kind != BlockKind::once && kind != BlockKind::mid && kind != BlockKind::post;
}

bool block_is_interleaved(BlockKind kind) {
  return kind == BlockKind::forward || kind == BlockKind::backward || kind == BlockKind::weight;
}

std::string BlockId::text() const {
  return stage == 0 ? std::string(block_name(kind)) : cat(block_name(kind), " stage ", stage);
}

std::vector<BlockId> blocks_of(const std::vector<BlockCall>& calls) {
  std::vector<BlockId> blocks;
  for (const BlockCall& call : calls) {
    if (std::ranges::find(blocks, call.id()) == blocks.end()) blocks.push_back(call.id());
  }
  return blocks;
}

bool parse_block(TextReader& reader, BlockId& block) {
  std::string word;
  int64_t stage = 0;
  if (!reader.name(word) || !block_named(word)) return false;
  block.kind = *block_named(word);
  if (reader.take("stage") && (!reader.integer(stage) || stage < 0 || stage > INT32_MAX)) return false;
  block.stage = static_cast<int>(stage);
  return true;
}

bool parse_call(TextReader& reader, BlockCall& call) {
  BlockId block;
  if (!parse_block(reader, block) || !reader.integer(call.micro_batch)) return false;
  call.stage = block.stage;
  call.block = block.kind;
  return true;
}

}  // namespace epl
