#include "tools/language_job.h"

#include <algorithm>

#include "tools/language.h"
#include "tools/progress.h"
#include "tools/report.h"

namespace epl::tools {

void measure_baselines(const Engine& engine, const Plan& plan, const DataFiles& whole, const JobOptions& o,
                       int64_t batches, Listener& listener, const Ending& ending) {
  const int64_t inputs = epl_plan_port_count(plan.get(), EPL_ENTRY_TRAIN, EPL_PORT_INPUT);
  bool has_target = false;
  for (int64_t i = 0; i < inputs; ++i)
    has_target =
        has_target || port_of(epl_plan_port, plan.get(), EPL_ENTRY_TRAIN, EPL_PORT_INPUT, i).name == o.loss_target;
  if (!has_target || inputs != 2) return;  // the loss has no target of its own
  ByteCounts counts;
  Json options = {{"reader", "text"},
                  {"batch", 1},
                  {"context", whole.context},
                  {"split", "train"},
                  {"held_out", o.text_held_out()}};
  const std::string text = print_json(options);
  Dataset all =
      make<Dataset>(epl_dataset_open, engine.get(), o.text.data(), o.text.size(), text.data(), text.size(), nullptr);
  const epl_tensor* fields[2];
  for (int64_t i = 0; i < epl_dataset_batches(all.get()); ++i) {
    check(epl_dataset_next(all.get(), ending.call(), fields, 2));
    counts.add(static_cast<const int64_t*>(epl_tensor_data(fields[0])),
               static_cast<const int64_t*>(epl_tensor_data(fields[1])), whole.context);
  }
  ByteCounts::Loss loss;
  const int64_t there = epl_dataset_batches(whole.held_out.get());
  for (int64_t i = 0; i < (batches > 0 ? std::min(batches, there) : there); ++i) {
    check(epl_dataset_next(whole.held_out.get(), ending.call(), fields, 2));
    counts.measure(static_cast<const int64_t*>(epl_tensor_data(fields[0])),
                   static_cast<const int64_t*>(epl_tensor_data(fields[1])),
                   static_cast<int64_t>(epl_tensor_bytes(fields[0]) / sizeof(int64_t)), loss);
  }
  const double unigram = loss.unigram / static_cast<double>(loss.bytes),
               bigram = loss.bigram / static_cast<double>(loss.bytes);
  listener.notice({{"event", "baselines"}, {"unigram", unigram}, {"bigram", bigram}, {"held_out_bytes", loss.bytes}},
                  "held-out text: " + with_thousands(loss.bytes) + " bytes; a unigram model needs " +
                      fixed(unigram, 4) + " nats per byte, a bigram model " + fixed(bigram, 4));
}

namespace {

// What a prediction takes of so many windows in this process: all of them, or of several processes its slice of a full
// batch, in which the last window stands for those that are missing.
class Windows {
 public:
  Windows(const Engine& engine, const Plan& plan, const JobOptions& o, int64_t rows, int64_t length)
      : rows_(rows), length_(length), count_(rows) {
    if (o.processes.several()) {
      check(epl_plan_slice(plan.get(), EPL_ENTRY_PREDICT, 0, o.processes.rank * o.ranks, o.ranks, &first_, &count_));
      samples_ = rows;
    }
    const int64_t dims[2] = {std::max<int64_t>(count_, 1), length};
    tensor_ = make<TensorHandle>(epl_tensor_create, engine.get(), static_cast<int32_t>(EPL_DTYPE_I64), dims, 2);
  }
  // `bytes`: of all windows.
  const epl_tensor* tensor(const std::vector<int64_t>& bytes) {
    if (count_ == 0) return nullptr;
    auto* to = static_cast<int64_t*>(epl_tensor_data(tensor_.get()));
    for (int64_t r = 0; r < count_; ++r)
      std::copy_n(bytes.begin() + std::min(first_ + r, rows_ - 1) * length_, length_, to + r * length_);
    return tensor_.get();
  }
  int64_t samples() const { return samples_; }  // that count, of slices; 0: all

 private:
  int64_t rows_, length_, first_ = 0, count_, samples_ = 0;
  TensorHandle tensor_;
};

}  // namespace

std::string write_sample(const Engine& engine, const Plan& plan, const Session& session, const DataFiles& data,
                         const JobOptions& o, int64_t wanted, double temperature, Ending& ending) {
  const int64_t inputs = epl_plan_port_count(plan.get(), EPL_ENTRY_PREDICT, EPL_PORT_INPUT);
  const int64_t outputs = epl_plan_port_count(plan.get(), EPL_ENTRY_PREDICT, EPL_PORT_OUTPUT);
  if (!data.held_out || data.context == 0 || inputs != 1 || wanted <= 0) return "";
  const Port scores = port_of(epl_plan_port, plan.get(), EPL_ENTRY_PREDICT, EPL_PORT_OUTPUT, int64_t{0});
  if (scores.dtype != EPL_DTYPE_F32 || scores.dims.size() != 3 || scores.dims[1] != data.context ||
      scores.dims[2] > 256)
    return "";
  const int64_t length = scores.dims[1], classes = scores.dims[2];
  check(epl_dataset_bind(data.held_out.get(), plan.get(), EPL_ENTRY_PREDICT));
  check(epl_dataset_seek(data.held_out.get(), 0));
  const epl_tensor* start = nullptr;
  check(epl_dataset_next(data.held_out.get(), nullptr, &start, 1));
  const int64_t rows = epl_tensor_dim(start, 0);  // a short text may have less than a batch
  const auto* text = static_cast<const int64_t*>(epl_tensor_data(start));
  std::vector<int64_t> bytes(text, text + rows * length);
  Windows windows(engine, plan, o, rows, length);
  std::string prompt, written;
  for (int64_t i = 0; i < length; ++i) prompt += static_cast<char>(bytes[static_cast<size_t>(i)]);
  Random random(o.seed);
  for (int64_t n = 0; n < wanted; ++n) {
    std::vector<epl_tensor*> raw(static_cast<size_t>(outputs));
    const epl_tensor* input = windows.tensor(bytes);
    epl_call_options call = *ending.call();
    call.samples = windows.samples();
    check(epl_session_predict(session.get(), &input, 1, &call, raw.data(), raw.size()));
    std::vector<TensorHandle> results(raw.begin(), raw.end());
    const auto* all = static_cast<const float*>(epl_tensor_data(raw[0]));
    for (int64_t r = 0; r < rows; ++r) {
      const int64_t byte = draw(all + (r * length + length - 1) * classes, classes, temperature, random.next());
      const auto window = bytes.begin() + r * length;
      std::copy(window + 1, window + length, window);
      window[length - 1] = byte;
      if (r == 0) written += static_cast<char>(byte);
    }
  }
  return with_dots(prompt) + " >>> " + with_dots(written);
}

}  // namespace epl::tools
