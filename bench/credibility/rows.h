// Published results: rows of tables with their whole configuration, the machines and the programs they ran on, and
// which of them constants were fitted on. Read from credibility.json and the tables that it names.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "bench/credibility/transformer.h"
#include "core/base/status.h"

namespace epl::credibility {

struct Row {
  std::string set, name, model;  // a model: its sizes
  std::string machine, software;
  Transformer sizes;
  Training training;
  int64_t ranks = 1, batch = 1, tensor = 1, copies = 1, stages = 1, chunks = 1;
  double samples = 1;  // of a call: the micro-batch
  SearchShards shards = SearchShards::nothing;
  // Where they are other ones than the machine's: bandwidths of a rank between hosts, and of its memory.
  double network = 0, memory = 0;
  double seconds = 0;  // of a step, as published
  double peak = 0;     // GiB of the fullest rank, as published; 0: it was not
  bool fitted = false;
  std::string mark;  // why no model explains it; empty: it counts

  int64_t micro_batches() const;
};

struct Book {
  Book() = default;
  Book(Book&&) = default;  // constants stay where they are
  Book& operator=(Book&&) = default;

  std::map<std::string, Machine> machines;
  std::map<std::string, Software> software;
  // What may be fitted, with the keys of the machine or program it belongs to: "a100 f16".
  std::map<std::string, double*> constants;
  std::vector<Row> rows;
};

// `more`: another table, whose rows are those of the set that is named `like`.
Result<Book> read_book(const std::string& folder, const std::string& more = {}, const std::string& like = {});

}  // namespace epl::credibility
