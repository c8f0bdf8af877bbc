// Data files as a user asks for them: one text with the options of the reader and those that every dataset has.
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "core/data/dataset.h"

namespace epl {

struct OpenedDataset {
  std::unique_ptr<Dataset> dataset;
  const ReaderRow* reader = nullptr;
  std::string given;  // the reader's own options, a JSON object, as they were given

  // Options, a JSON object, under which another file is read to the same meaning.
  std::string options_alike() const;
};

// `options`: a JSON object, or nothing. `packs`: the folder of optional packs. `stop` is asked between rows and files.
// `root`: where files that options name may lie (`open_reader`).
Result<OpenedDataset> open_dataset(const std::string& path, std::string_view options, const std::string& packs,
                                   const Stop& stop = {}, const std::string& root = {});

// A reader's samples as the options ask for them that every dataset has.
Result<OpenedDataset> dataset_of(std::unique_ptr<Reader> reader, const ReaderRow& row, std::string_view options);

}  // namespace epl
