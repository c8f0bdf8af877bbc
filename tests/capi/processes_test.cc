// One job in several processes through the C API: every door leads to the same bits as one process, and who does not
// belong is refused by name.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <optional>
#include <string>
#include <thread>

#include "tests/capi/world.h"
#include "tests/temporary_folder.h"

namespace {

namespace fs = std::filesystem;

constexpr int steps = 5;

// What a process of a job is told.
struct Part {
  int64_t first = 0, ranks = 0, world = 1;
  std::string rendezvous, secret;
  std::string callbacks;  // a folder for the host's own store
  double learning_rate = 0.01;
  double join_seconds = 30;
  bool slices = false;  // it passes the samples of its own ranks alone
};

// The host's own store: a file for each key.
std::string file_of(void* userdata, const char* key, size_t length) {
  std::string name(key, length);
  for (char& c : name)
    if (c == '/') c = '_';
  return *static_cast<std::string*>(userdata) + "/" + name;
}
epl_error* host_put(void* userdata, const char* key, size_t key_length, const void* value, size_t bytes) {
  const std::string path = file_of(userdata, key, key_length), draft = path + "." + std::to_string(::getpid());
  std::ofstream(draft, std::ios::binary).write(static_cast<const char*>(value), static_cast<std::streamsize>(bytes));
  const bool first = ::link(draft.c_str(), path.c_str()) == 0;
  const bool before = !first && errno == EEXIST;
  ::unlink(draft.c_str());
  return first ? nullptr : epl_error_create(before ? EPL_ERROR_MISUSE : EPL_ERROR_IO, EPL_STR("the file is there"));
}
epl_error* host_get(void* userdata, const char* key, size_t key_length, int64_t timeout_nanoseconds, void* value,
                    size_t capacity, size_t* bytes) {
  const std::string path = file_of(userdata, key, key_length);
  for (int64_t waited = 0; !fs::exists(path); waited += 5'000'000) {
    if (waited > timeout_nanoseconds) return epl_error_create(EPL_ERROR_DEADLINE_EXCEEDED, EPL_STR("no such file"));
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  std::ifstream in(path, std::ios::binary);
  const std::string text{std::istreambuf_iterator<char>(in), {}};
  *bytes = text.size();
  if (text.size() <= capacity) std::memcpy(value, text.data(), text.size());
  return nullptr;
}

// What of a batch of the world a process passes, as the plan says; NULL where its ranks read nothing.
struct Slice {
  Slice(const world& w, const epl_plan* plan, const Part& part) {
    for (int input = 0; input < 2; ++input) {
      int64_t first = -1, samples = -1;
      must(epl_plan_slice(plan, EPL_ENTRY_TRAIN, input, part.first, part.ranks, &first, &samples));
      if (samples == 0) continue;
      const auto* data = static_cast<const char*>(epl_tensor_data(w.inputs[input]));
      const int64_t of_sample = input == 0 ? 4 * sizeof(float) : sizeof(int64_t), dims[2] = {samples, 4};
      must(epl_tensor_create_copy(w.engine, input == 0 ? EPL_DTYPE_F32 : EPL_DTYPE_I64, dims, input == 0 ? 2 : 1,
                                  data + first * of_sample, static_cast<size_t>(samples * of_sample), &own[input]));
      inputs[input] = own[input];
    }
  }
  ~Slice() {
    for (epl_tensor* tensor : own) epl_tensor_destroy(tensor);
  }
  epl_tensor* own[2] = {};
  const epl_tensor* inputs[2] = {};
};

// Trains; the hash of the weights, or the message of the error.
std::string train(const std::string& folder, const Part& part) {
  world w;
  ::world_make(&w, folder.c_str(), 1, 8);
  must(epl_trainer_set_number(w.trainer, EPL_STR("optimizer.lr"), part.learning_rate));
  epl_plan* plan = nullptr;
  if (part.slices) must(epl_strategy_set(w.strategy, EPL_STR("outputs.local_sum"), EPL_STR("*")));
  epl_plan_options plan_options = EPL_PLAN_OPTIONS_INIT;
  plan_options.ranks = part.world;
  plan_options.local_ranks = part.ranks;
  must(epl_plan_create(w.model, w.trainer, w.strategy, &plan_options, nullptr, &plan));
  epl_session_options options = EPL_SESSION_OPTIONS_INIT;
  options.first_rank = part.first;
  options.ranks = part.ranks;
  options.rendezvous = part.rendezvous.data();
  options.rendezvous_length = part.rendezvous.size();
  options.secret = part.secret.data();
  options.secret_length = part.secret.size();
  options.slices = part.slices;
  options.join_timeout_nanoseconds = static_cast<int64_t>(part.join_seconds * 1e9);
  std::string userdata = part.callbacks;
  if (!part.callbacks.empty()) {
    options.put = host_put;
    options.get = host_get;
    options.userdata = &userdata;
    options.destroy = [](void* own) { static_cast<std::string*>(own)->clear(); };
  }
  epl_session* session = nullptr;
  std::string result;
  const auto note = [&](epl_error* error) {
    if (error != nullptr) result = epl_error_message(error, nullptr);
    epl_error_destroy(error);
    return error == nullptr;
  };
  if (note(epl_session_create(plan, &options, nullptr, &session))) {
    std::optional<Slice> slice;
    if (part.slices) slice.emplace(w, plan, part);
    const epl_tensor* const* inputs = slice ? slice->inputs : w.inputs;
    for (int i = 0; i < steps && result.empty(); ++i) note(epl_session_step(session, inputs, 2, nullptr, nullptr));
    epl_tensor* merged = nullptr;
    if (part.slices && result.empty() &&
        note(epl_session_output(session, EPL_ENTRY_TRAIN, EPL_STR("logits"), &merged))) {
      if (epl_tensor_ndim(merged) != 1) result = "the samples are not summed up";
      epl_tensor_destroy(merged);
    }
    uint64_t hash = 0;
    if (result.empty() && note(epl_session_hash(session, nullptr, &hash))) result = std::to_string(hash);
  }
  const bool made = session != nullptr;
  epl_session_destroy(session);
  if (!part.callbacks.empty() && made != userdata.empty()) result = "destroy was not called with the session";
  epl_plan_destroy(plan);
  ::world_end(&w);
  return result;
}

class Processes : public testing::Test {
 protected:
  void SetUp() override { fs::create_directories(folder + "/meet"); }

  // Each part in a process of its own, forked before this one has threads; `serve` is called then.
  std::vector<std::string> run(std::vector<Part> parts, const std::function<void(std::string&)>& serve = nullptr) {
    int address[2];
    EXPECT_EQ(::pipe(address), 0);
    std::vector<pid_t> children;
    for (size_t i = 0; i < parts.size(); ++i) {
      const pid_t child = ::fork();
      if (child == 0) {
        if (serve) {
          char text[256] = {};
          if (::read(address[0], text, sizeof text) != sizeof text) ::_exit(3);
          parts[i].rendezvous += text;
        }
        std::ofstream(folder + "/result" + std::to_string(i)) << train(folder + "/" + std::to_string(i), parts[i]);
        ::_exit(0);
      }
      children.push_back(child);
    }
    if (serve) {
      std::string text;
      serve(text);
      text.resize(256);
      for (size_t i = 0; i < parts.size(); ++i) EXPECT_EQ(::write(address[1], text.data(), text.size()), 256);
    }
    std::vector<std::string> results;
    for (size_t i = 0; i < parts.size(); ++i) {
      int status = 0;
      ::waitpid(children[i], &status, 0);
      EXPECT_EQ(status, 0);
      std::ifstream in(folder + "/result" + std::to_string(i));
      results.emplace_back(std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>());
    }
    ::close(address[0]), ::close(address[1]);
    return results;
  }
  std::string alone(double learning_rate = 0.01) { return run({{.learning_rate = learning_rate}}).front(); }
  static void expect_words(const std::string& text, const std::vector<std::string>& words) {
    for (const std::string& word : words) EXPECT_NE(text.find(word), std::string::npos) << text;
  }

  const epl::TemporaryFolder temporary;
  const std::string folder = temporary.path();
};

TEST_F(Processes, meet_in_a_folder) {
  const std::string expected = alone(), meet = "file://" + folder + "/meet";
  EXPECT_GT(expected.size(), 10u) << expected;
  const auto results = run({{0, 1, 4, meet, "secret"}, {1, 2, 4, meet, "secret"}, {3, 1, 4, meet, "secret"}});
  EXPECT_EQ(results, std::vector<std::string>(3, expected));
}

TEST_F(Processes, take_the_samples_of_their_own_ranks) {
  const std::string expected = alone(), meet = "file://" + folder + "/meet";
  Part one{0, 1, 4, meet, "secret"}, two{1, 2, 4, meet, "secret"}, three{3, 1, 4, meet, "secret"};
  one.slices = two.slices = three.slices = true;
  EXPECT_EQ(run({one, two, three}), std::vector<std::string>(3, expected));
}

TEST_F(Processes, meet_over_the_hosts_own_callbacks) {
  const std::string expected = alone();
  const auto results = run({{0, 1, 2, "", "secret", folder + "/meet"}, {1, 1, 2, "", "secret", folder + "/meet"}});
  EXPECT_EQ(results, std::vector<std::string>(2, expected));
}

// A store of this process, by its id or its address.
struct Served {
  explicit Served(const char* secret = nullptr, const char* address = nullptr) {
    must(epl_engine_create(nullptr, &engine));
    epl_store_options options = EPL_STORE_OPTIONS_INIT;
    options.address = address, options.address_length = address ? std::strlen(address) : 0;
    options.secret = secret, options.secret_length = secret ? std::strlen(secret) : 0;
    must(epl_store_create(engine, &options, &store));
  }
  ~Served() {
    epl_store_destroy(store);
    epl_engine_destroy(engine);
  }
  std::string id() const {
    epl_text* text = nullptr;
    must(epl_store_id(store, &text));
    std::string out(epl_text_data(text, nullptr));
    epl_text_destroy(text);
    return out;
  }
  std::string address() const { return epl_store_address(store, nullptr); }
  epl_engine* engine = nullptr;
  epl_store* store = nullptr;
};

TEST_F(Processes, meet_by_an_opaque_id) {
  const std::string expected = alone();
  std::unique_ptr<Served> served;
  const auto results = run({{0, 1, 2}, {1, 1, 2}}, [&](std::string& text) {
    served = std::make_unique<Served>();
    text = served->id();
    EXPECT_LT(text.size(), 256u);
    EXPECT_EQ(text.find(' '), std::string::npos);
  });
  EXPECT_EQ(results, std::vector<std::string>(2, expected));
}

TEST_F(Processes, meet_at_a_store_that_one_of_them_serves) {
  const std::string expected = alone();
  std::unique_ptr<Served> served;
  const auto results = run({{0, 2, 4, "tcp://", "secret"}, {2, 2, 4, "tcp://", "secret"}}, [&](std::string& text) {
    served = std::make_unique<Served>("secret");
    text = served->address();
  });
  EXPECT_EQ(results, std::vector<std::string>(2, expected));
}

TEST_F(Processes, who_does_not_belong_is_refused_by_name) {
  std::unique_ptr<Served> served;
  auto results = run({{0, 1, 2, "tcp://", "secret", "", 0.01, 3}, {1, 1, 2, "tcp://", "guess", "", 0.01, 3}},
                     [&](std::string& text) {
                       served = std::make_unique<Served>("secret");
                       text = served->address();
                     });
  expect_words(results[0], {"rank 0 of 2", "rank 1 has not come"});
  expect_words(results[1], {"store 127.0.0.1:", "do not have the same secret"});

  served.reset();
  int next = 0;
  const auto meet = [&] { return "file://" + folder + "/meet" + std::to_string(++next); };
  std::string place = meet();
  results = run({{0, 1, 2, place, "one"}, {1, 1, 2, place, "another"}});
  expect_words(results[0], {"rank 1 of group world has not the secret of this rank"});
  expect_words(results[1], {"rank 0 of group world has not the secret of this rank"});

  place = meet();
  results = run({{0, 1, 2, place}, {1, 1, 4, place}});
  expect_words(results[0], {"rank 0 of 2", "rank 1 of group world says that there are 4 ranks"});
  expect_words(results[1], {"rank 1 of 4", "rank 0 of group world says that there are 2 ranks"});

  place = meet();
  results = run({{0, 1, 2, place, "", "", 0.01}, {1, 1, 2, place, "", "", 0.02}});  // another plan
  expect_words(results[0], {"rank 1 of group world does not do the same job: its optimizer.lr is", "0.02"});
  expect_words(results[1], {"rank 0 of group world does not do the same job: its optimizer.lr is", "0.01"});

  place = meet();
  results = run({{0, 1, 2, place, "", "", 0.01, 2}, {0, 1, 2, place, "", "", 0.01, 2}});  // one rank twice
  for (const std::string& one : results)
    expect_words(one, {"rank 0 of 2", "two processes take themselves for the same rank"});
}

TEST_F(Processes, what_cannot_be_is_refused_with_a_reason) {
  const auto refused = [&](const Part& part) { return run({part}).front(); };
  expect_words(refused({0, 1, 2}), {"needs a rendezvous"});
  expect_words(refused({1, 2, 2, "file:///never"}), {"2 ranks from rank 1 on; the plan has 2"});
  expect_words(refused({-1, 1, 2, "file:///never"}), {"from rank -1 on"});
  expect_words(refused({0, 1, 2, "ftp://a:1"}), {"\"ftp://a:1\"", "tcp://HOST:PORT"});
  expect_words(refused({0, 1, 2, "tcp://a"}), {"\"a\"", "HOST:PORT"});
  expect_words(refused({0, 1, 2, "epl-id-1:0g:a:1"}), {"id that no store has made"});
  expect_words(refused({0, 1, 2, "epl-id-1:00:127.0.0.1:1", "secret"}), {"an id has its own secret"});
  expect_words(refused({0, 1, 2, "tcp://127.0.0.1:1", "", folder}), {"it takes one of them"});
  expect_words(refused({0, 1, 2, "tcp://127.0.0.1:1", "", "", 0.01, 0.1}), {"127.0.0.1:1 cannot be reached"});
  expect_words(refused({0, 1, 2, "", "", folder + "/nowhere", 0.01, 0.1}), {"host", "put", "failed"});
}

}  // namespace
