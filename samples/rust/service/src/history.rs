//! What a page shows of a job's past.
use crate::failure::{Failure, Result};
use serde::{Deserialize, Serialize};
use std::fs;
use std::path::Path;

const MOST_POINTS: usize = 1024;

/// The mean loss of the steps since the point before it, and the learning rate of the last of them.
#[derive(Clone, Debug, Deserialize, Serialize)]
struct Point {
    step: i64,
    loss: Option<f64>,
    learning_rate: Option<f64>,
}

/// A point for each `stride` steps. When it is full, two points become one.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub struct History {
    stride: i64,
    points: Vec<Point>,
    #[serde(skip)]
    sum: f64,
    #[serde(skip)]
    count: i64,
}

fn finite(value: f64) -> Option<f64> {
    Some(value).filter(|one| one.is_finite())
}

impl History {
    pub fn new() -> History {
        History { stride: 1, points: Vec::new(), sum: 0.0, count: 0 }
    }
    pub fn add(&mut self, step: i64, loss: f64, rate: f64) {
        (self.sum, self.count) = (self.sum + loss, self.count + 1);
        if step % self.stride != 0 {
            return;
        }
        let loss = finite(self.sum / self.count as f64);
        self.points.push(Point { step, loss, learning_rate: finite(rate) });
        (self.sum, self.count) = (0.0, 0);
        if self.points.len() < MOST_POINTS {
            return;
        }
        self.stride *= 2;
        let (mut kept, mut before): (Vec<Point>, Option<Point>) = (Vec::new(), None);
        for mut one in std::mem::take(&mut self.points) {
            if one.step % self.stride != 0 {
                before = Some(one);
                continue;
            }
            if let Some(before) = before.take() {
                one.loss = one.loss.zip(before.loss).map(|(a, b)| (a + b) / 2.0);
            }
            kept.push(one);
        }
        self.points = kept;
    }
    /// Keeps it beside a checkpoint.
    pub fn save(&self, path: &Path) -> Result<()> {
        write(path, &serde_json::to_vec(self).expect("a history is JSON"))
    }
    /// What was before a checkpoint of this step. Steps after it are made again.
    pub fn load(path: &Path, step: i64) -> Result<History> {
        let text = match fs::read(path) {
            Ok(text) => text,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(History::new()),
            Err(error) => return Err(error.into()),
        };
        let mut kept: History = serde_json::from_slice(&text).map_err(|e| Failure::wrong(e.to_string()))?;
        (kept.sum, kept.count, kept.stride) = (0.0, 0, kept.stride.max(1));
        kept.points.retain(|one| one.step <= step);
        Ok(kept)
    }
}

/// Writes a file whole or not at all.
pub fn write(path: &Path, bytes: &[u8]) -> Result<()> {
    let mut beside = path.as_os_str().to_owned();
    beside.push(".new");
    fs::write(&beside, bytes)?;
    Ok(fs::rename(&beside, path)?)
}
