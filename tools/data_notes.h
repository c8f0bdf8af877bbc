// What the command line says of data: how a target is used by a loss, and what was read.
#pragma once

#include "tools/job.h"
#include "tools/listener.h"

namespace epl::tools {

// Binds the target of a trainer to a field, which is converted: class indices for a loss that compares with classes,
// else what the loss itself asks for.
void bind_target(const Trainer& trainer, const Port& field, const std::string& loss);

// Reports what was read, with the names of classes, and writes it to OUT/data.json: whoever uses the model must know
// the order of columns and the numbers of classes.
void tell_data(const Dataset& data, const std::string& out, Listener& listener);

// The description of a dataset, for people.
std::string data_text(const Json& description);

// Whether `path` is to be read as data: not a model's name, not a checkpoint.
bool is_data(const std::string& path);

// The options of a reader, as --data-options and similar options take them: JSON, a file with it, or the data.json of a
// run.
Json reader_options(const char* flag, const std::string& argument);
// The options under which `path` was read, for another file. A file of another kind chooses its own reader.
Json options_alike(Json options, const std::string& path, const std::string& other);
// The options under which a run read its data, for a trained model or a checkpoint in the run's folder; null if it lies
// in none.
Json options_of_run(const std::string& path, const std::string& data);

}  // namespace epl::tools
