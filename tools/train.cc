// epl train: data, model, plan, steps; then what was learnt, on paper.
#include <sys/stat.h>

#include <algorithm>
#include <cmath>

#include "tools/commands.h"
#include "tools/job.h"
#include "tools/language.h"
#include "tools/progress.h"
#include "tools/report.h"

namespace epl::tools {
namespace {

struct TrainOptions {
  JobOptions job;
  std::string out = "out", report, resume;
  int64_t evaluate_every = 0, evaluate_batches = 40, checkpoint_every = 0, sample_bytes = 240;
  double temperature = 0.8;
};

// A job from the command line to its report.
class Training {
 public:
  explicit Training(const TrainOptions& o)
      : o_(o), engine_(make_engine(o.job)), model_(load_model(engine_, o.job.model)), data_(open_data(engine_, model_, o.job)) {
    Trainer trainer = make_trainer(engine_, o.job);
    bind_inputs(trainer, model_, data_.train);
    plan_ = make_plan(model_, trainer, make_strategy(engine_, o.job), o.job);
    for (Dataset* dataset : {&data_.train, &data_.held_out}) {
      if (*dataset) check(epl_dataset_bind(dataset->get(), plan_.get(), EPL_ENTRY_TRAIN));
    }
    session_ = make<Session>(epl_session_create, plan_.get(), static_cast<const epl_session_options*>(nullptr));
    batch_.resize(static_cast<size_t>(epl_plan_port_count(plan_.get(), EPL_ENTRY_TRAIN, EPL_PORT_INPUT)));
    if (!o.resume.empty()) check(epl_session_load(session_.get(), o.resume.data(), o.resume.size(), data_.train.get()));
    planned_ = epl_plan_memory_bytes_peak(plan_.get(), 0);
    cancel_ = make<Cancel>(epl_cancel_create, engine_.get());
  }

  int run() {
    make_out();
    watch_interrupts();
    Progress progress(o_.job.steps, o_.job.json, planned_);
    progress.unit = data_.context > 0 ? "tokens" : "samples";
    describe(progress);
    if (data_.held_out) measure_baselines(progress);
    train(progress);
    if (data_.held_out) evaluate(progress);
    finish(progress);
    return interrupted() ? 130 : 0;
  }

 private:
  void make_out() const {
    for (size_t slash = o_.out.find('/', 1);; slash = o_.out.find('/', slash + 1)) {
      ::mkdir(o_.out.substr(0, slash).c_str(), 0777);
      if (slash == std::string::npos) break;
    }
    struct stat info{};
    if (::stat(o_.out.c_str(), &info) != 0 || !S_ISDIR(info.st_mode)) throw ApiError(EPL_ERROR_IO, "cannot make the folder " + o_.out, o_.out);
  }

  void describe(Progress& progress) {
    int64_t elements = 0;
    const int64_t count = epl_session_state_count(session_.get(), EPL_STATE_PARAMETER);
    for (int64_t i = 0; i < count; ++i) elements += port_of(epl_session_state_port, session_.get(), EPL_STATE_PARAMETER, i).elements();
    parameters_ = elements;
    progress.event({{"event", "start"}, {"parameters", elements}, {"trained_tensors", count}, {"steps", o_.job.steps}, {"planned_bytes", planned_}},
                   "training " + with_thousands(elements) + " parameters in " + std::to_string(count) + " tensors for " + with_thousands(o_.job.steps) + " steps; memory planned: " +
                       readable_bytes(planned_));
  }

  // Unigram and bigram models of the same training text, on the same held-out windows that the model is measured on.
  void measure_baselines(Progress& progress) {
    ByteCounts counts;
    Json options = {{"reader", "text"}, {"batch", 1}, {"context", data_.context}, {"split", "train"}, {"held_out", o_.job.held_out}};
    const std::string text = print_json(options);
    Dataset all = make<Dataset>(epl_dataset_open, engine_.get(), o_.job.text.data(), o_.job.text.size(), text.data(), text.size());
    const epl_tensor* fields[2];
    for (int64_t i = 0; i < epl_dataset_batches(all.get()); ++i) {
      check(epl_dataset_next(all.get(), fields, 2));
      counts.add(static_cast<const int64_t*>(epl_tensor_data(fields[0])), static_cast<const int64_t*>(epl_tensor_data(fields[1])), data_.context);
    }
    ByteCounts::Loss loss;
    check(epl_dataset_seek(data_.held_out.get(), 0));
    size_t target = batch_.size();
    for (size_t i = 0; i < batch_.size(); ++i) {
      if (port_of(epl_plan_port, plan_.get(), EPL_ENTRY_TRAIN, EPL_PORT_INPUT, static_cast<int64_t>(i)).name == "target") target = i;
    }
    if (target == batch_.size() || batch_.size() != 2) return;   // the loss has no target of its own
    for (int64_t i = 0; i < held_out_batches(); ++i) {
      check(epl_dataset_next(data_.held_out.get(), batch_.data(), batch_.size()));
      const epl_tensor *context = batch_[1 - target], *next = batch_[target];
      counts.measure(static_cast<const int64_t*>(epl_tensor_data(context)), static_cast<const int64_t*>(epl_tensor_data(next)), data_.batch * data_.context, loss);
    }
    unigram_ = loss.unigram / static_cast<double>(loss.bytes);
    bigram_ = loss.bigram / static_cast<double>(loss.bytes);
    progress.event({{"event", "baselines"}, {"unigram", unigram_}, {"bigram", bigram_}, {"held_out_bytes", loss.bytes}},
                   "held-out text: " + with_thousands(loss.bytes) + " bytes; a unigram model needs " + fixed(unigram_, 4) + " nats per byte, a bigram model " + fixed(bigram_, 4));
  }

  int64_t held_out_batches() const { return std::min(o_.evaluate_batches, epl_dataset_batches(data_.held_out.get())); }

  void train(Progress& progress) {
    const int64_t every = o_.evaluate_every > 0 ? o_.evaluate_every : std::max<int64_t>(o_.job.steps / 4, 1);
    const int64_t units = data_.batch * std::max<int64_t>(data_.context, 1);
    epl_call_options call = EPL_CALL_OPTIONS_INIT;
    call.cancel = cancel_.get();
    while (epl_session_steps(session_.get()) < o_.job.steps && !interrupted()) {
      check(epl_dataset_next(data_.train.get(), batch_.data(), batch_.size()));
      epl_metrics metrics = EPL_METRICS_INIT;
      check(epl_session_step(session_.get(), batch_.data(), batch_.size(), &call, &metrics));
      losses_.emplace_back(static_cast<double>(metrics.step), metrics.loss);
      progress.step(metrics.step, metrics.loss, units, epl_session_memory_bytes_peak(session_.get(), 0));
      if (data_.held_out && metrics.step % every == 0 && metrics.step != o_.job.steps) evaluate(progress);
      if (o_.checkpoint_every > 0 && metrics.step % o_.checkpoint_every == 0) save_checkpoint();
    }
    train_seconds_ = progress.seconds();
  }

  void evaluate(Progress& progress) {
    check(epl_dataset_seek(data_.held_out.get(), 0));
    double total = 0;
    const int64_t count = held_out_batches();
    for (int64_t i = 0; i < count; ++i) {
      check(epl_dataset_next(data_.held_out.get(), batch_.data(), batch_.size()));
      epl_metrics metrics = EPL_METRICS_INIT;
      check(epl_session_evaluate(session_.get(), batch_.data(), batch_.size(), nullptr, &metrics));
      total += metrics.loss;
    }
    const double loss = total / static_cast<double>(count);
    held_out_.emplace_back(static_cast<double>(epl_session_steps(session_.get())), loss);
    progress.held_out(loss);
    if (o_.job.json) progress.event({{"event", "held_out"}, {"step", epl_session_steps(session_.get())}, {"loss", loss}}, "");
  }

  std::string checkpoint_path() const { return o_.out + "/checkpoint"; }
  void save_checkpoint() {
    const std::string path = checkpoint_path();
    check(epl_session_save(session_.get(), path.data(), path.size(), data_.train.get()));
  }

  // Every row of the batch goes on from a window of held-out text; the first rows are returned.
  std::string sample() {
    const int64_t inputs = epl_plan_port_count(plan_.get(), EPL_ENTRY_PREDICT, EPL_PORT_INPUT);
    const int64_t outputs = epl_plan_port_count(plan_.get(), EPL_ENTRY_PREDICT, EPL_PORT_OUTPUT);
    if (!data_.held_out || inputs != 1 || o_.sample_bytes <= 0) return "";
    const Port scores = port_of(epl_plan_port, plan_.get(), EPL_ENTRY_PREDICT, EPL_PORT_OUTPUT, int64_t{0});
    if (scores.dtype != EPL_DTYPE_F32 || scores.dims.size() != 3 || scores.dims[1] != data_.context || scores.dims[2] > 256) return "";
    const int64_t rows = scores.dims[0], length = scores.dims[1], classes = scores.dims[2];
    check(epl_dataset_bind(data_.held_out.get(), plan_.get(), EPL_ENTRY_PREDICT));
    check(epl_dataset_seek(data_.held_out.get(), 0));
    const epl_tensor* start = nullptr;
    check(epl_dataset_next(data_.held_out.get(), &start, 1));
    const int64_t dims[2] = {rows, length};
    TensorHandle window = make<TensorHandle>(epl_tensor_create_copy, engine_.get(), static_cast<int32_t>(EPL_DTYPE_I64), dims, 2,
                                             static_cast<const void*>(epl_tensor_data(start)), epl_tensor_bytes(start));
    auto* bytes = static_cast<int64_t*>(epl_tensor_data(window.get()));
    std::vector<std::string> written(static_cast<size_t>(rows));
    std::string prompt;
    for (int64_t i = 0; i < length; ++i) prompt += static_cast<char>(bytes[i]);
    Random random(o_.job.seed);
    for (int64_t n = 0; n < o_.sample_bytes && !interrupted(); ++n) {
      std::vector<epl_tensor*> raw(static_cast<size_t>(outputs));
      const epl_tensor* input = window.get();
      check(epl_session_predict(session_.get(), &input, 1, nullptr, raw.data(), raw.size()));
      std::vector<TensorHandle> results(raw.begin(), raw.end());
      const auto* all = static_cast<const float*>(epl_tensor_data(raw[0]));
      for (int64_t r = 0; r < rows; ++r) {
        const int64_t byte = draw(all + (r * length + length - 1) * classes, classes, o_.temperature, random.next());
        std::copy(bytes + r * length + 1, bytes + (r + 1) * length, bytes + r * length);
        bytes[(r + 1) * length - 1] = byte;
        written[static_cast<size_t>(r)] += static_cast<char>(byte);
      }
    }
    return printable(prompt) + " >>> " + printable(written[0]);
  }

  void finish(Progress& progress) {
    const std::string onnx = o_.out + "/trained.onnx";
    save_checkpoint();
    check(epl_session_export_onnx(session_.get(), onnx.data(), onnx.size()));
    const std::string text = sample();
    write_file(o_.report.empty() ? o_.out + "/report.html" : o_.report, render_report(report(text)));
    uint64_t hash = 0;
    check(epl_session_hash(session_.get(), &hash));
    char hex[20];
    std::snprintf(hex, sizeof hex, "%016llx", static_cast<unsigned long long>(hash));
    Json done = {{"event", "done"}, {"step", epl_session_steps(session_.get())}, {"weights_hash", hex}, {"seconds", train_seconds_}};
    std::string line = "done: " + with_thousands(epl_session_steps(session_.get())) + " steps in " + clock_text(train_seconds_);
    if (!held_out_.empty()) {
      done["held_out"] = held_out_.back().second;
      line += "; held-out loss " + fixed(held_out_.back().second, 4) + " nats per byte";
      if (unigram_ > 0) line += " (unigram " + fixed(unigram_, 4) + ", bigram " + fixed(bigram_, 4) + "; " + fixed(held_out_.back().second / unigram_, 3) + " of the unigram's)";
    } else if (!losses_.empty()) {
      line += "; last loss " + fixed(losses_.back().second, 4);
    }
    if (!text.empty()) {
      done["sample"] = text;
      line += "\n\nheld-out text, then what the model writes after >>>\n" + text + "\n";
    }
    progress.event(done, line);
  }

  Report report(const std::string& sample) const {
    Report page;
    page.title = "Training " + o_.job.model;
    page.facts = {{"parameters", with_thousands(parameters_)}, {"steps", with_thousands(epl_session_steps(session_.get()))}, {"optimizer", o_.job.optimizer},
                  {"time", clock_text(train_seconds_)}, {"memory planned", readable_bytes(planned_)},
                  {"memory used", readable_bytes(epl_session_memory_bytes_peak(session_.get(), 0))}};
    page.loss_unit = data_.context > 0 ? "nats per byte" : "loss";
    page.curves.push_back({"training", losses_});
    if (!held_out_.empty()) page.curves.push_back({"held out", held_out_});
    if (!held_out_.empty()) page.facts.emplace_back("held-out loss", fixed(held_out_.back().second, 4));
    if (unigram_ > 0) {
      page.levels = {{"unigram", unigram_}, {"bigram", bigram_}};
      page.facts.emplace_back("unigram, bigram", fixed(unigram_, 4) + ", " + fixed(bigram_, 4));
    }
    const Json memory = parse_json(text_of(epl_plan_describe, plan_.get(), "memory", size_t{6}));
    page.arena_bytes = memory.at("arena_bytes");
    page.instruction_count = memory.at("instructions");
    for (const Json& r : memory.at("ranges")) page.memory.push_back({r.at("name"), r.at("kind"), r.at("offset"), r.at("bytes"), r.at("first"), r.at("last")});
    page.sample = sample;
    return page;
  }

  const TrainOptions& o_;
  Engine engine_;
  Model model_;
  DataFiles data_;
  Plan plan_;
  Session session_;
  Cancel cancel_;
  std::vector<const epl_tensor*> batch_;
  std::vector<std::pair<double, double>> losses_, held_out_;
  double unigram_ = -1, bigram_ = -1, train_seconds_ = 0;
  int64_t planned_ = 0, parameters_ = 0;
};

}  // namespace

Run add_train(CLI::App& app) {
  auto o = std::make_shared<TrainOptions>();
  app.add_option("model", o->job.model, "the ONNX file to start from")->required()->check(CLI::ExistingFile);
  add_data_options(app, o->job, true);
  o->job.steps = 1000;
  app.add_option("--steps", o->job.steps, "optimizer steps in all")->check(CLI::PositiveNumber)->capture_default_str();
  add_binding_options(app, o->job);
  add_training_options(app, o->job);
  add_machine_options(app, o->job);
  app.add_option("--out", o->out, "folder for trained.onnx, checkpoint and report.html")->capture_default_str();
  app.add_option("--report", o->report, "the page with loss curve and memory plan (OUT/report.html)");
  app.add_option("--resume", o->resume, "go on from this checkpoint, to --steps in all");
  app.add_option("--checkpoint-every", o->checkpoint_every, "save every so many steps; at the end in any case")->check(CLI::NonNegativeNumber);
  app.add_option("--evaluate-every", o->evaluate_every, "measure the held-out loss every so many steps (a quarter of --steps)")->check(CLI::NonNegativeNumber);
  app.add_option("--evaluate-batches", o->evaluate_batches, "batches of held-out text to measure on")->check(CLI::PositiveNumber)->capture_default_str();
  app.add_option("--sample-bytes", o->sample_bytes, "text to write with the trained model")->capture_default_str();
  app.add_option("--temperature", o->temperature, "of that text")->check(CLI::Range(0.01, 10.0))->capture_default_str();
  app.add_flag("--json", o->job.json, "JSON lines instead of progress");
  return [o] { return Training(*o).run(); };
}

}  // namespace epl::tools
