// Gradients of attention, tile by tile, with the probabilities computed again from the saved log-sums. See attention.h.
#include "backends/cpu/kernels/attention_tile.simd.h"
#include "backends/cpu/kernels/reduce_rows.simd.h"

namespace epl::cpu::EPL_SIMD {

void attention_grad_task(const AttentionProblem&, const AttentionTensors&, const AttentionGradTask&, float* scratch);

namespace {

// Products q k^T become probabilities, and products dy v^T the gradients of the products q k^T; zero where masked.
void score_gradients(const AttentionProblem& p, const TilePosition& position, ScoreMap& map, const float* lse,
                     const float* dots, const float* corrections, float* scores, float* through) {
  const V scale = set(p.scale), inverse_cap_2 = set(p.cap == 0 ? 0.0f : 1.0f / (p.cap * p.cap));
  for (int64_t r = 0; r < position.rows; ++r) {
    const int64_t seen = position.seen(r), columns = position.columns(r);
    if (columns == 0) continue;  // nor do its neighbours see any key: nobody reads this row
    map.at(position.row + r, position.key);
    float* s = scores + r * attention_keys;
    float* g = through + r * attention_keys;
    const V shift = set(lse[r]), dot = set(dots[r]), correction = set(corrections[r]);
    for (int64_t column = 0; column < columns; column += lanes) {
      const V capped = map.capped(hn::Load(f32, s + column));
      V e = hn::Mul(exp(hn::Sub(map.biased(capped, column, seen), shift)), correction);
      V d = hn::Mul(hn::Mul(e, hn::Sub(hn::Load(f32, g + column), dot)), scale);
      if (map.has_cap) d = hn::Mul(d, hn::Sub(set(1.0f), hn::Mul(hn::Mul(capped, capped), inverse_cap_2)));
      if (column + lanes > seen) {
        const auto mask = seen_mask(column, seen);
        e = hn::IfThenElseZero(mask, e);
        d = hn::IfThenElseZero(mask, d);
      }
      hn::Store(e, f32, s + column);
      hn::Store(d, f32, g + column);
    }
    const size_t rest = static_cast<size_t>(attention_keys - columns) * sizeof(float);
    std::memset(s + columns, 0, rest);
    std::memset(g + columns, 0, rest);
  }
}

class GradTask {
 public:
  GradTask(const AttentionProblem& p, const AttentionTensors& t, const AttentionGradTask& task, float* scratch)
      : p_(p), t_(t), task_(task), depth_(attention_padded(p.depth)), values_(attention_padded(p.values)) {
    const auto take = [&](int64_t floats) {
      float* at = scratch;
      scratch += floats;
      return at;
    };
    scores_ = take(attention_rows * attention_keys);
    through_ = take(attention_rows * attention_keys);
    packed_keys_ = take(attention_padded(p.depth) * attention_keys);
    packed_values_ = take(attention_padded(p.values) * attention_keys);
    dk_ = take(attention_keys * depth_);
    dv_ = take(attention_keys * values_);
    padded_k_ = take(attention_keys * depth_);
    padded_q_ = take(attention_rows * depth_);
    padded_dq_ = take(attention_rows * depth_);
    padded_dy_ = take(attention_rows * values_);
  }

  void run() {
    const int64_t first_key = (task_.batch * p_.key_heads + task_.key_head) * p_.keys;
    for (int64_t key = task_.first_key; key < task_.last_key; key += attention_keys) {
      const int64_t count = least(attention_keys, p_.keys - key);
      const float* k = t_.k + (first_key + key) * p_.depth;
      pack_columns(k, count, p_.depth, packed_keys_);
      pack_columns(t_.v + (first_key + key) * p_.values, count, p_.values, packed_values_);
      keys_ = view_rows(k, count, p_.depth, padded_k_);
      if (task_.keys) std::memset(dk_, 0, static_cast<size_t>(attention_keys * (depth_ + values_)) * sizeof(float));
      for (int64_t head = task_.first_head; head < task_.last_head; ++head) {
        for (int64_t row = task_.first_row; row < task_.last_row; row += attention_rows) {
          const TilePosition position{row, least(attention_rows, p_.queries - row), key, count, p_.causal};
          if (!position.empty()) add_tile(position, task_.key_head * p_.repeat() + head);
        }
      }
      if (!task_.keys) continue;
      store(dk_, depth_, count, p_.depth, t_.dk + (first_key + key) * p_.depth);
      store(dv_, values_, count, p_.values, t_.dv + (first_key + key) * p_.values);
    }
  }

 private:
  static void store(const float* from, int64_t step, int64_t count, int64_t width, float* to) {
    for (int64_t r = 0; r < count; ++r)
      std::memcpy(to + r * width, from + r * step, static_cast<size_t>(width) * sizeof(float));
  }

  void add_tile(const TilePosition& position, int64_t head) {
    const int64_t first = (task_.batch * p_.heads + head) * p_.queries + position.row;
    const float* q = t_.q + first * p_.depth;
    const float* dy = t_.dy + first * p_.values;
    tile_scores(position, q, p_.depth, packed_keys_, scores_);
    tile_scores(position, dy, p_.values, packed_values_, through_);
    ScoreMap map(p_, t_, task_.batch, head);
    score_gradients(p_, position, map, t_.lse + first, t_.dots + first, t_.corrections + first, scores_, through_);
    if (task_.keys) {
      add_keys(position, scores_, view_rows(dy, position.rows, p_.values, padded_dy_), dv_, values_);
      add_keys(position, through_, view_rows(q, position.rows, p_.depth, padded_q_), dk_, depth_);
    }
    if (task_.queries) add_queries(position, t_.dq + first * p_.depth);
  }

  // to[keys, width] += weights^T * rows
  void add_keys(const TilePosition& position, const float* weights, const TileView& rows, float* to, int64_t width) {
    tile_product<TileA::transposed>(position.keys, {0, weights, attention_keys, rows.at, rows.step, to, width, true},
                                    [&](int64_t k)
                                        HWY_ATTR { return TileRange{position.first_row(k), position.rows, width}; });
  }

  // dq += gradients * keys; the first tile of keys, which every row sees, sets it.
  void add_queries(const TilePosition& position, float* dq) {
    const bool add = position.key > 0, direct = depth_ == p_.depth;
    float* to = dq;
    if (!direct) {
      to = padded_dq_;
      if (add) view_rows(dq, position.rows, p_.depth, padded_dq_);
    }
    tile_product<TileA::rows>(position.rows, {0, through_, attention_keys, keys_.at, keys_.step, to, depth_, add},
                              [&](int64_t r) HWY_ATTR { return TileRange{0, position.seen_by_granule(r), depth_}; });
    if (!direct) store(padded_dq_, depth_, position.rows, p_.depth, dq);
  }

  const AttentionProblem& p_;
  const AttentionTensors& t_;
  const AttentionGradTask& task_;
  const int64_t depth_, values_;
  TileView keys_{};
  float *scores_, *through_, *packed_keys_, *packed_values_, *dk_, *dv_, *padded_k_, *padded_q_, *padded_dq_,
      *padded_dy_;
};

bool is_large(float lse) { return lse > attention_large_lse || lse < -attention_large_lse; }

// sums[rows, 16 lanes] += exp(score - lse) of the keys of a tile.
void add_weights(const TilePosition& position, ScoreMap& map, const float* lse, const float* scores, float* sums) {
  for (int64_t r = 0; r < position.rows; ++r) {
    const int64_t seen = position.seen(r), columns = position.columns(r);
    if (columns == 0 || !is_large(lse[r])) continue;
    map.at(position.row + r, position.key);
    const V shift = set(lse[r]);
    for (int64_t column = 0; column < columns; column += lanes) {
      float* lane = sums + r * reduce_lanes + column % reduce_lanes;
      const V capped = map.capped(hn::Load(f32, scores + r * attention_keys + column));
      const V e = exp(hn::Sub(map.biased(capped, column, seen), shift));
      hn::Store(hn::Add(hn::Load(f32, lane), hn::IfThenElseZero(seen_mask(column, seen), e)), f32, lane);
    }
  }
}

}  // namespace

void attention_corrections(const AttentionProblem& p, const AttentionTensors& t, int64_t batch, int64_t head,
                           int64_t row, float* to, float* scratch) {
  const int64_t rows = least(attention_rows, p.queries - row), first = (batch * p.heads + head) * p.queries + row;
  bool any = false;
  for (int64_t r = 0; r < rows; ++r) {
    to[first + r] = 1;
    any = any || is_large(t.lse[first + r]);
  }
  if (!any) return;
  float* scores = scratch;
  float* sums = scores + attention_rows * attention_keys;
  float* packed_keys = sums + attention_rows * reduce_lanes;
  std::memset(sums, 0, static_cast<size_t>(attention_rows * reduce_lanes) * sizeof(float));
  ScoreMap map(p, t, batch, head);
  for (int64_t key = 0; key < p.keys; key += attention_keys) {
    const TilePosition position{row, rows, key, least(attention_keys, p.keys - key), p.causal};
    if (position.empty()) break;
    pack_columns(t.k + ((batch * p.key_heads + head / p.repeat()) * p.keys + key) * p.depth, position.keys, p.depth,
                 packed_keys);
    tile_scores(position, t.q + first * p.depth, p.depth, packed_keys, scores);
    add_weights(position, map, t.lse + first, scores, sums);
  }
  for (int64_t r = 0; r < rows; ++r) {
    if (!is_large(t.lse[first + r])) continue;
    Lanes l;
    for (int part = 0; part < parts; ++part) l.part[part] = hn::Load(f32, sums + r * reduce_lanes + part * lanes);
    to[first + r] = 1.0f / join_lanes<Sum>(l);
  }
}

void attention_grad_task(const AttentionProblem& p, const AttentionTensors& t, const AttentionGradTask& task,
                         float* scratch) {
  GradTask(p, t, task, scratch).run();
}

}  // namespace epl::cpu::EPL_SIMD
