#include "core/formats/parquet.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "core/base/shown.h"
#include "core/formats/thrift.h"

namespace epl {
namespace {

Status damaged_parquet(const FileReader& file, std::string message) {
  return Status(Code::invalid_argument, cat("not a Parquet file: ", message), file.path());
}

// An entry of the schema, which is a tree written out in order.
struct Element {
  int64_t type = -1, repetition = 0, children = 0, converted = -1, scale = 0;
  std::string name;
  bool half = false;  // two bytes that are a number of 16 bits
};

void read_logical_type(Thrift& in, Element& out) {
  in.read_structure([&](Thrift::Field field) {
    if (field.id == 15) out.half = true;
    in.skip(field.type);
  });
}

Element read_element(Thrift& in) {
  Element out;
  in.read_structure([&](Thrift::Field field) {
    switch (field.id) {
      case 1:
        out.type = in.integer();
        break;
      case 3:
        out.repetition = in.integer();
        break;
      case 4:
        out.name = in.text();
        break;
      case 5:
        out.children = in.integer();
        break;
      case 6:
        out.converted = in.integer();
        break;
      case 7:
        out.scale = in.integer();
        break;
      case 10:
        field.type == Thrift::structure ? read_logical_type(in, out) : in.skip(field.type);
        break;
      default:
        in.skip(field.type);
    }
  });
  return out;
}

ParquetColumn column_of(const Element& e) {
  constexpr int64_t decimal = 5, first_unsigned = 11, last_unsigned = 14;
  ParquetColumn out;
  out.name = e.name;
  out.type = static_cast<ParquetType>(e.type);
  out.optional = e.repetition == 1;
  out.is_unsigned = e.converted >= first_unsigned && e.converted <= last_unsigned;
  if (e.repetition == 2) out.unreadable = "holds lists";
  if (e.children > 0)
    out.unreadable = "is nested: lists, maps and structures are not read; give each of their parts a column";
  if (e.children == 0 && out.type == ParquetType::i96)
    out.unreadable = "holds times of 96 bits, an old form; write numbers";
  if (e.children == 0 && out.type == ParquetType::fixed)
    out.unreadable =
        e.half ? "holds numbers of 16 bits; write 32" : "holds byte arrays of one length; write numbers or texts";
  if (e.converted == decimal) {
    if (out.text()) out.unreadable = "holds decimals as byte arrays; write them as 64-bit numbers";
    if (e.scale < 0 || e.scale > 18) out.unreadable = cat("holds decimals of scale ", e.scale);
    out.unit = std::pow(10.0, -static_cast<double>(e.scale));
  }
  return out;
}

struct Chunk {
  ParquetChunk chunk;
  int64_t data_offset = -1, dictionary_offset = -1;
  bool elsewhere = false;  // in another file
};

Chunk read_chunk(Thrift& in) {
  Chunk out;
  int64_t bytes = 0;
  in.read_structure([&](Thrift::Field field) {
    if (field.id == 1) out.elsewhere = true;
    if (field.id != 3 || field.type != Thrift::structure) return in.skip(field.type);
    in.read_structure([&](Thrift::Field meta) {
      switch (meta.id) {
        case 4:
          out.chunk.codec = static_cast<int32_t>(in.integer());
          break;
        case 5:
          out.chunk.values = in.integer();
          break;
        case 7:
          bytes = in.integer();
          break;
        case 9:
          out.data_offset = in.integer();
          break;
        case 11:
          out.dictionary_offset = in.integer();
          break;
        default:
          in.skip(meta.type);
      }
    });
  });
  // A dictionary stands in front of the pages; some writers say 0 where there is none.
  const bool dictionary = out.dictionary_offset > 0 && out.dictionary_offset < out.data_offset;
  out.chunk.offset = static_cast<uint64_t>(dictionary ? out.dictionary_offset : out.data_offset);
  out.chunk.bytes = static_cast<uint64_t>(bytes);
  return out;
}

// What the file's last bytes hold.
struct Footer {
  std::vector<Element> schema;
  std::vector<std::pair<int64_t, std::vector<Chunk>>> groups;
  int64_t rows = 0;
};

bool read_footer(std::string_view bytes, Footer& out) {
  Thrift in(bytes);
  return in.read_structure([&](Thrift::Field field) {
    if (field.id == 2 && field.type == Thrift::list) {
      in.read_list([&](Thrift::Type) { out.schema.push_back(read_element(in)); });
    } else if (field.id == 3) {
      out.rows = in.integer();
    } else if (field.id == 4 && field.type == Thrift::list) {
      in.read_list([&](Thrift::Type) {
        auto& [rows, chunks] = out.groups.emplace_back();
        in.read_structure([&](Thrift::Field part) {
          if (part.id == 1 && part.type == Thrift::list) {
            in.read_list([&](Thrift::Type) { chunks.push_back(read_chunk(in)); });
          } else if (part.id == 3) {
            rows = in.integer();
          } else {
            in.skip(part.type);
          }
        });
      });
    } else {
      in.skip(field.type);
    }
  });
}

// The columns in the order of the leaves, of which each chunk is one; a nested column stands for all its leaves.
struct Leaf {
  size_t column = 0;
  bool readable = false;
};

Status read_columns(const FileReader& file, const Footer& footer, std::vector<ParquetColumn>& columns,
                    std::vector<Leaf>& leaves) {
  const std::vector<Element>& schema = footer.schema;
  if (schema.empty() || schema[0].children < 1) return damaged_parquet(file, "its schema has no root");
  // How many children each open element still has.
  std::vector<int64_t> open = {schema[0].children};
  for (size_t i = 1; i < schema.size(); ++i) {
    while (!open.empty() && open.back() == 0) open.pop_back();
    if (open.empty()) return damaged_parquet(file, "its schema has more elements than its tree");
    --open.back();
    const Element& e = schema[i];
    if (e.children < 0 || (e.children == 0 && (e.type < 0 || e.type > 7)))
      return damaged_parquet(file, cat("column ", shown(e.name, 60), " has no type"));
    const bool top = open.size() == 1;
    if (top) columns.push_back(column_of(e));
    if (e.children == 0) {
      leaves.push_back({columns.size() - 1, top});
    } else {
      open.push_back(e.children);
    }
  }
  while (!open.empty() && open.back() == 0) open.pop_back();
  if (!open.empty()) return damaged_parquet(file, "its schema ends before its tree");
  return {};
}

}  // namespace

Result<ParquetFile> read_parquet(const FileReader& file) {
  constexpr uint64_t ends = 12, max_footer = 1 << 28;
  char mark[4] = {}, tail[8] = {};
  if (file.size() < ends) return damaged_parquet(file, cat("it has ", file.size(), " bytes"));
  EPL_TRY(file.read(0, mark, 4));
  EPL_TRY(file.read(file.size() - 8, tail, 8));
  if (std::memcmp(mark, "PARE", 4) == 0 || std::memcmp(tail + 4, "PARE", 4) == 0)
    return Status(Code::unsupported, "the file is encrypted", file.path());
  if (std::memcmp(mark, "PAR1", 4) != 0) return damaged_parquet(file, "it does not begin with PAR1");
  if (std::memcmp(tail + 4, "PAR1", 4) != 0)
    return damaged_parquet(file, "it does not end with PAR1; is it truncated?");
  uint32_t length = 0;
  std::memcpy(&length, tail, 4);
  if (length > file.size() - ends || length > max_footer)
    return damaged_parquet(file, cat("a footer of ", length, " bytes in a file of ", file.size()));
  std::string bytes(length, '\0');
  EPL_TRY(file.read(file.size() - 8 - length, bytes.data(), length));
  Footer footer;
  if (!read_footer(bytes, footer)) return damaged_parquet(file, "its footer is damaged");
  ParquetFile out;
  std::vector<Leaf> leaves;
  EPL_TRY(read_columns(file, footer, out.columns, leaves));
  // A run of equal values may take no space at all, but no table of samples is made of such columns alone.
  if (footer.rows < 0 || static_cast<uint64_t>(footer.rows) > (uint64_t{1} << 20) + 64 * file.size())
    return damaged_parquet(file, cat(footer.rows, " rows in ", file.size(), " bytes"));
  out.rows = footer.rows;
  int64_t rows = 0;
  for (const auto& [group_rows, chunks] : footer.groups) {
    if (group_rows < 0 || group_rows > out.rows - rows)
      return damaged_parquet(file, cat("a group of ", group_rows, " rows, where the file has ", out.rows, " in all"));
    rows += group_rows;
    if (chunks.size() != leaves.size())
      return damaged_parquet(file,
                             cat("a group has ", chunks.size(), " chunks, the schema ", leaves.size(), " columns"));
    ParquetFile::Group group{group_rows, std::vector<ParquetChunk>(out.columns.size())};
    for (size_t i = 0; i < chunks.size(); ++i) {
      const Chunk& c = chunks[i];
      ParquetColumn& column = out.columns[leaves[i].column];
      if (!leaves[i].readable) continue;
      if (c.elsewhere) column.unreadable = "is in another file";
      if (c.chunk.values != group_rows && column.unreadable.empty())
        return damaged_parquet(
            file, cat("column ", shown(column.name, 60), " has ", c.chunk.values, " values in ", group_rows, " rows"));
      if (c.data_offset < 4 || c.chunk.offset > file.size() || c.chunk.bytes > file.size() - c.chunk.offset) {
        return damaged_parquet(file, cat("column ", shown(column.name, 60), " lies outside the file"));
      }
      group.chunks[leaves[i].column] = c.chunk;
    }
    out.groups.push_back(std::move(group));
  }
  if (rows != out.rows) return damaged_parquet(file, cat("its groups have ", rows, " rows, the file says ", out.rows));
  return out;
}

}  // namespace epl
