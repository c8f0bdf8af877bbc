// Meshes in text forms: "axis data 2 rank" a line, "data.micro_batch" for some of the axes.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "core/ir/text.h"
#include "core/strategy/batch_layout.h"

namespace epl {

std::string axis_lines(const Mesh& mesh);
// What follows the word "axis".
bool parse_axis(TextReader& reader, Mesh& mesh);
std::string axis_names(const Mesh& mesh, const std::vector<int>& axes);
bool parse_axis_names(std::string_view text, const Mesh& mesh, std::vector<int>& axes);
// "[data.micro_batch.unit, -]": per dimension, or factor, the axes that cut it. "data and split outer 8" are two cuts,
// "split of 10" is an uneven one.
std::string cuts_text(const Mesh& mesh, const std::vector<Cuts>& all);
bool parse_cuts(TextReader& reader, const Mesh& mesh, std::vector<Cuts>& out);
// How the batch is cut, "batch [data and micro_batch.unit outer 2]", where not all axes cut it in their order.
std::string batch_line(const Mesh& mesh, const BatchLayout& batch);
// What follows the word "batch".
bool parse_batch(TextReader& reader, const Mesh& mesh, BatchLayout& batch);
// " rank_local 1 of split like w0": which ranks have it alone, and what stands for it on all of them; nothing where it
// is not rank-local.
std::string rank_local_text(const Mesh& mesh, const RankLocal& rank_local, std::string_view representative);
bool parse_rank_local(TextReader& reader, const Mesh& mesh, RankLocal& rank_local, std::string& representative);
// "dim 0 outer 8 over data.micro_batch": how a tensor of the caller is cut, in one dimension; "dim -1" for none.
std::string port_sharding_text(const Mesh& mesh, const Sharding& sharding);
bool parse_port_sharding(TextReader& reader, const Mesh& mesh, const TensorType& type, Sharding& sharding);

}  // namespace epl
