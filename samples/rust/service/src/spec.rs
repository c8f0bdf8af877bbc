//! What a client asks for, and what it sees.
use crate::failure::{excerpt, Failure, Result};
use crate::json;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

/// It is kept beside the job, so that a service that starts again goes on with it.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
pub struct Spec {
    /// The id of an upload.
    pub model: String,
    /// The id of an upload.
    pub data: String,
    /// Options of the reader: docs/readers.md.
    pub dataset: Map<String, Value>,
    /// docs/training.md
    pub trainer: Map<String, Value>,
    /// docs/strategy.md
    pub strategy: Map<String, Value>,
    /// 0: 1.
    pub ranks: i64,
    /// To make in all.
    pub steps: i64,
    /// A checkpoint after so many steps; 0: by time.
    pub checkpoint: i64,
    pub checkpoint_seconds: f64,
}

impl Default for Spec {
    fn default() -> Spec {
        let (model, data) = (String::new(), String::new());
        let (dataset, trainer, strategy) = (Map::new(), Map::new(), Map::new());
        Spec { model, data, dataset, trainer, strategy, ranks: 0, steps: 0, checkpoint: 0, checkpoint_seconds: 0.0 }
    }
}

const MOST_STEPS: i64 = 1 << 40;
const MOST_RANKS: i64 = 64;
/// Batches, which are memory beside the budget.
const MOST_AHEAD: f64 = 16.0;

/// Options of a dataset that a client may set (docs/readers.md). A file that one of them names lies among the uploads:
/// the library sees to that.
const DATASET: [&str; 28] = [
    "batch",
    "channels",
    "classes",
    "context",
    "fields",
    "fit",
    "header",
    "height",
    "held_out",
    "ignore",
    "input",
    "inputs",
    "layout",
    "mean",
    "missing",
    "order",
    "partial",
    "prefetch",
    "reader",
    "seed",
    "separator",
    "split",
    "split_seed",
    "std",
    "stride",
    "target",
    "target_column",
    "width",
];

fn within(name: &str, value: i64, least: i64, most: i64) -> Result<()> {
    match (least..=most).contains(&value) {
        true => Ok(()),
        false => Err(Failure::wrong(format!("{name} is {value}; an integer from {least} to {most} is expected"))),
    }
}

impl Spec {
    /// As a client writes it.
    pub fn of(given: &Map<String, Value>) -> Result<Spec> {
        const NAMES: [&str; 9] =
            ["model", "data", "dataset", "trainer", "strategy", "ranks", "steps", "checkpoint", "checkpoint_seconds"];
        json::only(given, &NAMES)?;
        Ok(Spec {
            model: json::text(given, "model")?,
            data: json::text(given, "data")?,
            dataset: json::objects(given, "dataset")?,
            trainer: json::objects(given, "trainer")?,
            strategy: json::objects(given, "strategy")?,
            ranks: json::integer(given, "ranks")?,
            steps: json::integer(given, "steps")?,
            checkpoint: json::integer(given, "checkpoint")?,
            checkpoint_seconds: json::number(given, "checkpoint_seconds")?,
        })
    }
    /// Looks at what a client asks for, before anything is made of it.
    pub fn check(&mut self) -> Result<()> {
        within("steps", self.steps, 1, MOST_STEPS)?;
        within("ranks", self.ranks, 0, MOST_RANKS)?;
        within("checkpoint", self.checkpoint, 0, MOST_STEPS)?;
        if !(0.0..1e9).contains(&self.checkpoint_seconds) {
            return Err(Failure::wrong("checkpoint_seconds is a number that is not negative"));
        }
        if self.checkpoint_seconds == 0.0 {
            self.checkpoint_seconds = 60.0;
        }
        for (name, value) in &self.dataset {
            if !DATASET.contains(&name.as_str()) {
                let (name, known) = (excerpt(name), DATASET.join(", "));
                let text = format!("a client cannot set the dataset's option {name:?}; there are: {known}");
                return Err(Failure::wrong(text));
            }
            if name == "prefetch" && value.as_f64().is_some_and(|ahead| ahead > MOST_AHEAD) {
                let text = format!("prefetch is {value}; this service reads at most {MOST_AHEAD} batches ahead");
                return Err(Failure::wrong(text));
            }
        }
        Ok(())
    }
    /// Whether it needs an upload: as its model, as its data, or as a file that an option names, with a "./" before it for
    /// example.
    pub fn uses(&self, upload: &str) -> bool {
        let target = self.dataset.get("target").and_then(Value::as_str).and_then(|one| one.rsplit('/').next());
        self.model == upload || self.data == upload || target == Some(upload)
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Phase {
    /// Created, not started.
    Waiting,
    Running,
    Paused,
    Done,
    /// Its record is all that is left.
    Failed,
    /// What its watchers hear last.
    Deleted,
}

impl Phase {
    pub fn name(self) -> &'static str {
        match self {
            Phase::Waiting => "waiting",
            Phase::Running => "running",
            Phase::Paused => "paused",
            Phase::Done => "done",
            Phase::Failed => "failed",
            Phase::Deleted => "deleted",
        }
    }
}

/// What watchers see. Its JSON is the service's promise. A number that is not there, or not finite, is null.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub struct Status {
    pub id: String,
    pub phase: Phase,
    pub step: i64,
    pub steps: i64,
    pub loss: Option<f64>,
    pub learning_rate: Option<f64>,
    pub seconds_per_step: Option<f64>,
    /// Its part of the budget; 0 of a job that has failed.
    pub memory_bytes: u64,
    pub checkpoint_step: i64,
    /// Milliseconds since 1970.
    pub created: i64,
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub error: Option<String>,
    /// A line, of this event alone.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub log: Option<String>,
}

impl Status {
    pub fn begin(id: &str, phase: Phase, steps: i64, created: i64) -> Status {
        let (loss, learning_rate, seconds_per_step) = (None, None, None);
        let (id, error, log) = (id.to_string(), None, None);
        let (memory_bytes, checkpoint_step, step) = (0, 0, 0);
        Status {
            id,
            phase,
            step,
            steps,
            loss,
            learning_rate,
            seconds_per_step,
            memory_bytes,
            checkpoint_step,
            created,
            error,
            log,
        }
    }
    pub fn is_over(&self) -> bool {
        matches!(self.phase, Phase::Done | Phase::Failed | Phase::Deleted)
    }
    /// Orders jobs as they were created.
    pub fn time(&self) -> (i64, String) {
        (self.created, self.id.clone())
    }
}
