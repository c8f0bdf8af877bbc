#include "core/data/reader.h"

namespace epl {

const ReaderTable& reader_table() {
  static const ReaderTable table = [] {
    ReaderTable made;
    fill_reader_table(made);
    return made;
  }();
  return table;
}

}  // namespace epl
